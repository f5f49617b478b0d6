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

// A TCP connection to another rank of the job. Both ends have proven that they know the key that
// the ranks exchanged through the store. `secret` is new and the same at both ends.
struct Connection {
  Fd fd;
  int peer = 0;
  int socket = 0;  // several connections between two ranks are numbered
  std::string secret;
};

// Listens on one port of one address, for as long as it lives, and connects to ranks that are asked
// for; unauthenticated connections are closed after at most 64 bytes, and however many there are,
// they cannot keep a rank out. The rank with the higher number calls. One thread at a time; nothing
// but the constructor and find() waits.
//   Door door(options, *store, [&](Connection&& connection) { ... });
//   door.find({0, 1}, deadline);
//   door.call(0);
//   while (...) if (wait_for(door.fd(), POLLIN, soon)) door.step();
class Door {
 public:
  static constexpr int kMostSockets = 4;  // between two ranks
  // Collective: rank 0 creates the key, everybody tells where it listens.
  Door(const DoorOptions& options, Store& store, std::function<void(Connection&&)> on_connection);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Learns from the store where these ranks listen.
  void find(const std::vector<int>& peers, Deadline deadline);
  // Connects to a lower rank whose address is known, again and again until it is there.
  void call(int peer, int socket = 0);
  // Readable when step() has something to do, but for attempts that failed: while is_calling(),
  // step() wants to be called every few milliseconds.
  int fd() const;
  bool is_calling() const;
  void step();
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
// host, the one that leads to a rank elsewhere.
std::string choose_address(int rank, const std::vector<std::string>& seen);

}  // namespace horon
