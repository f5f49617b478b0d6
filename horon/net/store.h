#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/time.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"

// Where ranks meet before they can talk: a small map from names to bytes, shared by all of them.
// Thread-safe. Keys are printable, at most 256 characters; values at most 1 MiB. Waiting never
// outlasts its deadline: it ends with TimeoutError that names the key.
namespace horon {

class Store {
 public:
  static constexpr size_t kMaxKey = 256;
  static constexpr size_t kMaxValue = 1U << 20;
  virtual ~Store() = default;

  // Creates or replaces; readers see the old value or the new one, never a part.
  void set(const std::string& key, const std::string& value, Deadline deadline);
  // The value, as soon as there is one.
  std::string get(const std::string& key, Deadline deadline);
  // All of them, as soon as all are there; one question, where the store is another process.
  std::vector<std::string> get_all(const std::vector<std::string>& keys, Deadline deadline);
  // Returns when every key has a value.
  void wait(const std::vector<std::string>& keys, Deadline deadline);
  // Adds to the number under `key` (absent counts as 0), atomically over all ranks; the new number.
  // A key that holds something else than a number: UsageError.
  int64_t add(const std::string& key, int64_t amount, Deadline deadline);
  // True if the key was there.
  bool remove(const std::string& key, Deadline deadline);
  // This host's end of the connection to the store; empty if there is none to speak of.
  virtual std::string own_address() { return ""; }

 private:
  virtual void do_set(const std::string& key, const std::string& value, Deadline deadline) = 0;
  virtual std::string do_get(const std::string& key, Deadline deadline) = 0;
  virtual std::vector<std::string> do_get_all(const std::vector<std::string>& keys,
                                              Deadline deadline);
  virtual int64_t do_add(const std::string& key, int64_t amount, Deadline deadline) = 0;
  virtual bool do_remove(const std::string& key, Deadline deadline) = 0;
};

// For ranks that are threads of one process.
std::shared_ptr<Store> make_memory_store();

// For processes that see one folder. The folder is made with mode 0700 if absent; one that belongs
// to somebody else, or that others may write to, is refused (UsageError).
std::shared_ptr<Store> make_file_store(const std::string& folder);

// For processes that reach a StoreServer: all `endpoints` lead to it and the first that answers is
// taken. Connects when first used and, until it was met once, tries again while the deadline
// lasts. A server that does not know the secret: Error with exit code 16.
std::shared_ptr<Store> make_tls_store(const std::vector<Endpoint>& endpoints, const Secret& secret);

// `inner` with every key prefixed: several users of one store keep out of each other's way.
std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> inner, const std::string& prefix);

}  // namespace horon
