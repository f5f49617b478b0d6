#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"
#include "horon/net/store.h"

namespace horon {

// This rank, and where it listens.
struct DoorOptions {
  int rank = 0;
  int size = 1;
  std::string interface;  // name or address; empty: the one that reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
  std::string transport = "tcp";  // named in messages
};

// A TCP connection to another rank of the job. Both ends have proven that they know the key in the
// store. `secret` is new and the same at both ends.
struct Connection {
  Fd fd;
  int peer = 0;
  int socket = 0;  // several connections between two ranks are numbered
  std::string secret;
};

// Listens on one port of one address as long as it lives, and connects to ranks on request. Of two
// ranks the one with the higher number connects. Unauthenticated connections are closed after at
// most 64 bytes; any number of them cannot keep a rank from connecting. One thread at a time; only
// the constructor and find() wait.
//   Door door(options, *store, [&](Connection&& connection) { ... });
//   door.find({0, 1}, deadline);
//   door.call(0);
//   while (...) if (wait_for(door.fd(), POLLIN, soon)) door.work();
class Door {
 public:
  static constexpr int kMostSockets = 4;  // between two ranks
  // Collective: rank 0 creates the key, every rank publishes its address.
  Door(const DoorOptions& options, Store& store, std::function<void(Connection&&)> on_connection);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Reads from the store where these ranks listen.
  void find(const std::vector<int>& peers, Deadline deadline);
  // Connects to a lower rank that find() has found; repeats failed attempts.
  void call(int peer, int socket = 0);
  // Readable when work() has something to do, except to repeat a failed attempt: while
  // is_calling(), call work() every few milliseconds.
  int fd() const;
  bool is_calling() const;
  // Does what can be done now, and returns.
  void work();
  // "no connection with rank 3 within 30s, the first at 10.0.0.3:4000; ...", for these ranks.
  std::string describe_missing(const std::vector<int>& peers) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Opens a TCP connection to every other rank (none at our own index) and stops listening.
// Collective. Data on the connections is not encrypted. Throws TimeoutError naming the ranks that
// did not connect.
std::vector<Fd> connect_mesh(const DoorOptions& options, Store& store);

// Pure: the address to listen on, chosen from the addresses of the ranks' connections to the store
// ("": unknown) and this host's routes. Our own if the store is on another host; if it is on this
// host, the one that reaches a rank on another host.
std::string choose_address(int rank, const std::vector<std::string>& seen);

}  // namespace horon
