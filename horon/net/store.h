#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/time.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"

// Where ranks meet before they can communicate: a small map from names to bytes, shared by all
// ranks.
namespace horon {

// Keys are printable, at most 256 characters; values at most 1 MiB. Thread-safe. No call outlasts
// its deadline: TimeoutError names the key.
//   store->set("address/0", "10.0.0.1:4000", deadline);
//   const std::string address = store->get("address/0", deadline);  // waits until it is set
class Store {
 public:
  static constexpr size_t kMaxKey = 256;
  static constexpr size_t kMaxValue = 1U << 20;
  virtual ~Store() = default;

  // Creates or replaces a value; readers see the old or the new one, never a part.
  void set(const std::string& key, const std::string& value, Deadline deadline);
  // Waits until the key has a value and returns it.
  std::string get(const std::string& key, Deadline deadline);
  // Waits until all keys have values and returns them; one request if the store is another process.
  std::vector<std::string> get_all(const std::vector<std::string>& keys, Deadline deadline);
  // Returns when every key has a value.
  void wait(const std::vector<std::string>& keys, Deadline deadline);
  // Adds to the number under `key` (0 if absent), atomically over all ranks; returns the new
  // number. UsageError if the value is not a number.
  int64_t add(const std::string& key, int64_t amount, Deadline deadline);
  // True if the key existed.
  bool remove(const std::string& key, Deadline deadline);
  // The local address of the connection to the store; empty if there is none.
  virtual std::string own_address() { return ""; }

 private:
  // Implementations, called with checked arguments; same errors as above.
  virtual void do_set(const std::string& key, const std::string& value, Deadline deadline) = 0;
  virtual std::string do_get(const std::string& key, Deadline deadline) = 0;
  virtual std::vector<std::string> do_get_all(const std::vector<std::string>& keys,
                                              Deadline deadline);
  virtual int64_t do_add(const std::string& key, int64_t amount, Deadline deadline) = 0;
  virtual bool do_remove(const std::string& key, Deadline deadline) = 0;
};

// For ranks that are threads of one process.
std::shared_ptr<Store> make_memory_store();

// For processes that share a folder. The folder is created with mode 0700 if absent; a folder that
// belongs to another user, or that others may write to, is refused (UsageError).
std::shared_ptr<Store> make_file_store(const std::string& folder);

// For processes that can reach a StoreServer: all `endpoints` lead to it, and the first that
// answers is used. Connects on first use and retries until the deadline as long as it has never
// connected. A server that does not know the secret: Error with exit code 16.
std::shared_ptr<Store> make_tls_store(const std::vector<Endpoint>& endpoints, const Secret& secret);

// `inner` with a prefix before every key, so that several users of one store do not collide.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> inner, const std::string& prefix);

}  // namespace horon
