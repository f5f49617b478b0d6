#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "horon/base/event_loop.h"
#include "horon/base/log.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"
#include "horon/net/store.h"

namespace horon {

// Serves a store to the processes of one job over TLS. Uses an EventLoop; create and destroy it on
// the loop's thread, or while the loop is not running.
//
// Limits for connections that have not authenticated: 1 KiB, 5 s, at most 64 at a time; a new one
// replaces the oldest, so that idle connections cannot keep a late rank out.
class StoreServer {
 public:
  struct Options {
    std::vector<std::string> addresses = {"127.0.0.1"};  // one listener per address
    int port = 0;                                        // same for all addresses; 0: any
    size_t max_unauthenticated = 64;
    Milliseconds handshake_timeout{5000};
  };
  StoreServer(EventLoop& loop, const Secret& secret, const Options& options, Log log);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::vector<Endpoint> endpoints() const;
  // Listens on an additional address.
  void add_address(const std::string& address);
  size_t members() const;  // authenticated connections that are open
  // Connections that were refused: displaced, timed out, or closed after invalid data.
  uint64_t refused() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A server with its own thread, for a rank that serves the store.
class StoreThread {
 public:
  // `before_serving`: called when the server listens, before it accepts connections.
  using Invite = std::function<void(const std::vector<Endpoint>& endpoints)>;
  StoreThread(const Secret& secret, const StoreServer::Options& options, Log log,
              const Invite& before_serving = nullptr);
  // Waits until the other processes have disconnected, at most `linger`.
  ~StoreThread();
  std::vector<Endpoint> endpoints() const { return endpoints_; }
  void set_linger(Milliseconds linger) { linger_ = linger; }

 private:
  EventLoop loop_;
  std::unique_ptr<StoreServer> server_;
  std::vector<Endpoint> endpoints_;
  Milliseconds linger_{0};
  std::jthread thread_;
};

}  // namespace horon
