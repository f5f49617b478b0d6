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

// Serves a store to the members of one job over TLS. Lives on a loop; make and destroy it on the
// loop's thread, or while the loop does not run.
//
// Strangers: a connection that has not proved the secret may send 1 KiB, take 5 s and hold one of
// 64 places; when all are taken the oldest is thrown out for the newest, so that no crowd of silent
// connections keeps a late rank waiting.
class StoreServer {
 public:
  struct Options {
    std::vector<std::string> addresses = {"127.0.0.1"};  // one listener each
    int port = 0;                                        // the same for all addresses; 0: any
    size_t unproven_places = 64;
    Milliseconds handshake_timeout{5000};
  };
  StoreServer(EventLoop& loop, const Secret& secret, const Options& options, Log log);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::vector<Endpoint> endpoints() const;
  // Listens on one more address.
  void add_address(const std::string& address);
  size_t members() const;  // connections that proved the secret and are still there
  // Connections of strangers: those that had to go, or left after words that proved nothing.
  uint64_t refused() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A server with a thread of its own, for a rank that serves the store.
class StoreThread {
 public:
  // `before_serving`: called once it listens, before anybody is let in.
  using Invite = std::function<void(const std::vector<Endpoint>& endpoints)>;
  StoreThread(const Secret& secret, const StoreServer::Options& options, Log log,
              const Invite& before_serving = nullptr);
  // Stays until the other members have left, at most `linger`.
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
