#include "horon/comm/p2p/door.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/event_loop.h"
#include "horon/net/seal.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

constexpr size_t kNonce = 16;
constexpr size_t kProof = 32;
constexpr std::string_view kMagic = "HORONd2\n";
constexpr size_t kHello = kMagic.size() + 12 + kNonce;  // caller, host, socket
constexpr size_t kPlaces = 64;
constexpr auto kPatience = std::chrono::seconds(5);

// One connection that is being made. The caller (higher rank) says hello, the host answers with its
// proof, the caller proves itself, the host says welcome.
struct Visit {
  Fd fd;
  int peer = -1;  // known from the start to the caller, after the hello to the host
  int socket = 0;
  bool is_caller = false;
  bool connected = false;
  size_t wanted = 0;  // bytes of the message we wait for
  std::string in;
  std::string hello;
  std::string host_nonce;
  EventLoop::Timer timer = 0;
  int step = 0;
};

}  // namespace

class Door::Impl {
 public:
  Impl(const DoorOptions& options, Store& store, std::function<void(Connection&&)> on_connection)
      : options_(options),
        store_(store),
        on_connection_(std::move(on_connection)),
        endpoints_(static_cast<size_t>(options.size)) {
    const Deadline deadline = Deadline::after(options.start_timeout);
    listener_ = listen_on(own_address(deadline), 0);
    store.set(address_key(options.rank), format_endpoint(local_endpoint(listener_.get())),
              deadline);
    if (options.rank == 0) store.set("door/key", random_bytes(32), deadline);
    loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
  }

  void find(const std::vector<int>& peers, Deadline deadline) {
    std::vector<std::string> keys;
    std::vector<int> unknown;
    for (int peer : peers) {
      if (endpoints_[static_cast<size_t>(peer)].port != 0 || peer == options_.rank) continue;
      unknown.push_back(peer);
      keys.push_back(address_key(peer));
    }
    if (key_.empty()) keys.emplace_back("door/key");
    if (keys.empty()) return;
    std::vector<std::string> found = store_.get_all(keys, deadline);
    for (size_t i = 0; i < unknown.size(); ++i)
      endpoints_[static_cast<size_t>(unknown[i])] = parse_endpoint(found[i]);
    if (key_.empty()) key_ = found.back();
  }

  void call(int peer, int socket) {
    calling_.insert({peer, socket});
    const Endpoint& at = endpoints_[static_cast<size_t>(peer)];
    auto visit = std::make_shared<Visit>();
    visit->is_caller = true;
    visit->peer = peer;
    visit->socket = socket;
    visit->fd = start_connect(at.host, at.port);
    if (!visit->fd) return call_again(*visit);
    visit->wanted = kNonce + kProof;
    visit->hello = std::string(kMagic) +
                   Packer()
                       .u32(static_cast<uint32_t>(options_.rank))
                       .u32(static_cast<uint32_t>(peer))
                       .u32(static_cast<uint32_t>(socket))
                       .take() +
                   random_bytes(kNonce);
    loop_.watch(visit->fd.get(), EPOLLIN | EPOLLOUT, [this, visit](uint32_t) { on_event(visit); });
  }

  int fd() const { return loop_.fd(); }
  bool is_calling() const { return !calling_.empty(); }
  void work() { loop_.run_once(Deadline::after(Milliseconds(0))); }
  void wait(Deadline deadline) { loop_.run_once(deadline); }

  std::string describe_missing(const std::vector<int>& peers) const {
    const Endpoint& first = endpoints_[static_cast<size_t>(peers.front())];
    const std::string at =
        first.port == 0 ? "whose address is unknown" : "the first at " + format_endpoint(first);
    return fmt::format(
        "{}: no connection with {} within {}, {}; is that address reachable from {}? "
        "(HORON_INTERFACE chooses another)",
        options_.transport, name_ranks(peers), format_duration(options_.start_timeout), at,
        local_endpoint(listener_.get()).host);
  }

 private:
  static std::string address_key(int rank) { return fmt::format("door/at/{}", rank); }

  std::string own_address(Deadline deadline) const {
    if (!options_.interface.empty()) return resolve_interface(options_.interface);
    if (options_.one_host) return "127.0.0.1";
    const auto key = [](int rank) { return fmt::format("door/seen/{}", rank); };
    store_.set(key(options_.rank), store_.own_address(), deadline);
    std::vector<std::string> keys;
    for (int rank = 0; rank < options_.size; ++rank) keys.push_back(key(rank));
    return choose_address(options_.rank, store_.get_all(keys, deadline));
  }

  void call_again(const Visit& visit) {
    loop_.after(Milliseconds(5 + options_.rank % 7),
                [this, peer = visit.peer, socket = visit.socket] { call(peer, socket); });
  }

  void accept_some() {
    for (int i = 0; i < 64; ++i) {
      bool busy = false;
      Fd socket = accept_from(listener_.get(), &busy);
      if (busy && !guests_.empty()) {
        end(guests_.front());
        continue;
      }
      if (!socket) return;
      auto visit = std::make_shared<Visit>();
      visit->fd = std::move(socket);
      visit->connected = true;
      visit->wanted = kHello;
      guests_.push_back(visit);
      visit->timer = loop_.after(kPatience, [this, visit] { end(visit); });
      loop_.watch(visit->fd.get(), EPOLLIN, [this, visit](uint32_t) { on_event(visit); });
      if (guests_.size() > kPlaces) end(guests_.front());
    }
  }

  // `visit` by value: ending it must not take it from under us.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  void end(std::shared_ptr<Visit> visit) {
    if (!visit->fd) return;
    loop_.forget(visit->fd.get());
    loop_.cancel(visit->timer);
    visit->fd.reset();
    guests_.remove(visit);
    if (visit->is_caller) call_again(*visit);
  }

  void on_event(const std::shared_ptr<Visit>& visit) {
    if (!visit->connected) {
      if (connect_result(visit->fd.get()) != 0) return end(visit);
      visit->connected = true;
      loop_.change(visit->fd.get(), EPOLLIN);
      if (!say(*visit, visit->hello)) return end(visit);
    }
    char piece[kHello + kNonce + kProof];
    const ssize_t got = recv(visit->fd.get(), piece, visit->wanted - visit->in.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return end(visit);
    visit->in.append(piece, static_cast<size_t>(got));
    if (visit->in.size() < visit->wanted) return;
    const std::string message = std::exchange(visit->in, {});
    const bool good = visit->is_caller ? hear_host(*visit, message) : hear_caller(*visit, message);
    if (!good) return end(visit);
    if (visit->step == 2) finish(visit);
  }

  // The few bytes of a message always fit into an empty socket.
  static bool say(const Visit& visit, const std::string& bytes) {
    return send(visit.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  std::string proof(const Visit& visit, std::string_view who) const {
    return hmac(key_, std::string(who) + visit.hello + visit.host_nonce);
  }

  bool hear_host(Visit& visit, const std::string& message) {
    if (visit.step == 1) {
      visit.step = 2;
      return message == "!";
    }
    visit.host_nonce = message.substr(0, kNonce);
    if (!same_bytes(message.substr(kNonce), proof(visit, "host"))) return false;
    visit.step = 1;
    visit.wanted = 1;
    return say(visit, proof(visit, "caller"));
  }

  bool hear_caller(Visit& visit, const std::string& message) {
    if (visit.step == 0) {
      if (!message.starts_with(kMagic) || key_.empty()) return false;
      Unpacker from(std::string_view(message).substr(kMagic.size(), 12));
      visit.peer = static_cast<int>(from.u32());
      const bool expected = from.u32() == static_cast<uint32_t>(options_.rank) &&
                            visit.peer > options_.rank && visit.peer < options_.size;
      visit.socket = static_cast<int>(from.u32());
      if (!expected || visit.socket < 0 || visit.socket >= Door::kMostSockets) return false;
      visit.hello = message;
      visit.host_nonce = random_bytes(kNonce);
      visit.step = 1;
      visit.wanted = kProof;
      return say(visit, visit.host_nonce + proof(visit, "host"));
    }
    const bool proven = same_bytes(message, proof(visit, "caller")) &&
                        !connected_.contains({visit.peer, visit.socket});
    visit.step = 2;
    return proven && say(visit, "!");
  }

  void finish(const std::shared_ptr<Visit>& visit) {
    loop_.forget(visit->fd.get());
    loop_.cancel(visit->timer);
    guests_.remove(visit);
    calling_.erase({visit->peer, visit->socket});
    connected_.insert({visit->peer, visit->socket});
    const auto nonces = visit->hello.substr(kHello - kNonce) + visit->host_nonce;
    on_connection_({std::move(visit->fd), visit->peer, visit->socket,
                    derive_key(key_, nonces, "horon connection " + visit->hello)});
  }

  DoorOptions options_;
  Store& store_;
  std::function<void(Connection&&)> on_connection_;
  EventLoop loop_;
  Fd listener_;
  std::string key_;
  std::vector<Endpoint> endpoints_;
  std::set<std::pair<int, int>> calling_;  // peer and socket
  std::set<std::pair<int, int>> connected_;
  std::list<std::shared_ptr<Visit>> guests_;  // not yet authenticated, oldest first
};

Door::Door(const DoorOptions& options, Store& store,
           std::function<void(Connection&&)> on_connection)
    : impl_(std::make_unique<Impl>(options, store, std::move(on_connection))) {}
Door::~Door() = default;
void Door::find(const std::vector<int>& peers, Deadline deadline) { impl_->find(peers, deadline); }
void Door::call(int peer, int socket) { impl_->call(peer, socket); }
int Door::fd() const { return impl_->fd(); }
bool Door::is_calling() const { return impl_->is_calling(); }
void Door::work() { impl_->work(); }
std::string Door::describe_missing(const std::vector<int>& peers) const {
  return impl_->describe_missing(peers);
}

std::string choose_address(int rank, const std::vector<std::string>& seen) {
  const std::string& mine = seen[static_cast<size_t>(rank)];
  const auto elsewhere = [](const std::string& address) {
    return !address.empty() && !is_loopback(address);
  };
  if (elsewhere(mine)) return mine;
  if (std::all_of(seen.begin(), seen.end(), is_loopback)) return "127.0.0.1";
  for (const std::string& address : seen) {
    const std::string own = elsewhere(address) ? source_address(address) : "";
    if (!own.empty()) return own;
  }
  // The store says nothing about networks (a folder): where the default route goes out.
  const std::string own = source_address("192.0.2.1");
  return own.empty() ? "127.0.0.1" : own;
}

std::vector<Fd> connect_mesh(const DoorOptions& options, Store& store) {
  const Deadline deadline = Deadline::after(options.start_timeout);
  std::vector<Fd> links(static_cast<size_t>(options.size));
  Door door(options, store, [&](Connection&& connection) {
    links[static_cast<size_t>(connection.peer)] = std::move(connection.fd);
  });
  std::vector<int> missing;
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer != options.rank) missing.push_back(peer);
  }
  door.find(missing, deadline);
  for (int peer = 0; peer < options.rank; ++peer) door.call(peer);
  while (true) {
    std::erase_if(missing, [&](int peer) { return links[static_cast<size_t>(peer)].get() >= 0; });
    if (missing.empty()) return links;
    if (deadline.passed()) throw TimeoutError(door.describe_missing(missing), missing);
    const auto soon = deadline.left(door.is_calling() ? Milliseconds(5) : Milliseconds(1000));
    wait_for(door.fd(), POLLIN, Deadline::after(soon));
    door.work();
  }
}

}  // namespace horon
