#include "horon/comm/p2p/door.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <memory>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/event_loop.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

constexpr size_t kNonce = 16;
constexpr size_t kProof = 32;
constexpr std::string_view kMagic = "HORONd1\n";
constexpr size_t kHello = kMagic.size() + 8 + kNonce;
constexpr size_t kPlaces = 64;
constexpr auto kPatience = std::chrono::seconds(5);

// One connection on its way. The caller (higher rank) says hello, the host answers with its proof,
// the caller proves itself, the host says welcome.
struct Visit {
  Fd fd;
  int peer = -1;  // known from the start to the caller, after the hello to the host
  bool is_caller = false;
  bool connected = false;
  size_t wanted = 0;  // bytes of the message we wait for
  std::string in;
  std::string hello;
  std::string nonce;
  EventLoop::Timer timer = 0;
  int step = 0;
};

class Mesh {
 public:
  Mesh(const DoorOptions& options, Store& store)
      : options_(options), deadline_(Deadline::after(options.start_timeout)) {
    links_.resize(static_cast<size_t>(options.size));
    const std::string address = own_address(store);
    listener_ = listen_on(address, 0);
    meet(store);
  }

  std::vector<Fd> run() {
    loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
    for (int peer = 0; peer < options_.rank; ++peer) call(peer);
    while (missing() > 0 && !deadline_.passed()) loop_.run_once(deadline_);
    if (missing() > 0) give_up();
    return std::move(links_);
  }

 private:
  std::string own_address(Store& store) const {
    if (!options_.interface.empty()) return resolve_interface(options_.interface);
    if (options_.one_host) return "127.0.0.1";
    const auto key = [](int rank) { return fmt::format("door/seen/{}", rank); };
    store.set(key(options_.rank), store.own_address(), deadline_);
    std::vector<std::string> keys;
    for (int rank = 0; rank < options_.size; ++rank) keys.push_back(key(rank));
    return choose_address(options_.rank, store.get_all(keys, deadline_));
  }

  void meet(Store& store) {
    const auto key = [](int rank) { return fmt::format("door/at/{}", rank); };
    store.set(key(options_.rank), format_endpoint(local_endpoint(listener_.get())), deadline_);
    if (options_.rank == 0) store.set("door/key", random_bytes(32), deadline_);
    std::vector<std::string> keys = {"door/key"};
    for (int rank = 0; rank < options_.size; ++rank) keys.push_back(key(rank));
    std::vector<std::string> found = store.get_all(keys, deadline_);
    key_ = found.front();
    for (size_t i = 1; i < found.size(); ++i) endpoints_.push_back(parse_endpoint(found[i]));
  }

  int missing() const {
    int count = 0;
    for (int peer = 0; peer < options_.size; ++peer)
      count += peer != options_.rank && !links_[static_cast<size_t>(peer)] ? 1 : 0;
    return count;
  }

  [[noreturn]] void give_up() const {
    std::vector<int> ranks;
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer != options_.rank && !links_[static_cast<size_t>(peer)]) ranks.push_back(peer);
    }
    const Endpoint& first = endpoints_[static_cast<size_t>(ranks.front())];
    throw TimeoutError(
        fmt::format("gloo: no connection with {} within {}, the first at {}; is that address "
                    "reachable from {}? (HORON_INTERFACE chooses another)",
                    name_ranks(ranks), format_duration(options_.start_timeout),
                    format_endpoint(first), local_endpoint(listener_.get()).host),
        ranks);
  }

  void call(int peer) {
    const Endpoint& at = endpoints_[static_cast<size_t>(peer)];
    auto visit = std::make_shared<Visit>();
    visit->is_caller = true;
    visit->peer = peer;
    visit->fd = start_connect(at.host, at.port);
    if (!visit->fd) return call_again(peer);
    visit->wanted = kNonce + kProof;
    visit->nonce = random_bytes(kNonce);
    visit->hello =
        std::string(kMagic) +
        Packer().u32(static_cast<uint32_t>(options_.rank)).u32(static_cast<uint32_t>(peer)).take() +
        visit->nonce;
    loop_.watch(visit->fd.get(), EPOLLIN | EPOLLOUT, [this, visit](uint32_t) { on_event(visit); });
  }

  void call_again(int peer) {
    loop_.after(Milliseconds(5 + options_.rank % 7), [this, peer] { call(peer); });
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
    if (visit->is_caller) call_again(visit->peer);
  }

  void on_event(const std::shared_ptr<Visit>& visit) {
    if (!visit->connected) {
      if (connect_result(visit->fd.get()) != 0) return end(visit);
      visit->connected = true;
      loop_.change(visit->fd.get(), EPOLLIN);
      if (!say(*visit, visit->hello)) return end(visit);
    }
    char piece[kNonce + kProof];
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

  std::string proof(const Visit& visit, std::string_view who, const std::string& host_nonce) const {
    return hmac(key_, std::string(who) + visit.hello + host_nonce);
  }

  bool hear_host(Visit& visit, const std::string& message) {
    if (visit.step == 1) {
      visit.step = 2;
      return message == "!";
    }
    const std::string nonce = message.substr(0, kNonce);
    if (!same_bytes(message.substr(kNonce), proof(visit, "host", nonce))) return false;
    visit.step = 1;
    visit.wanted = 1;
    return say(visit, proof(visit, "caller", nonce));
  }

  bool hear_caller(Visit& visit, const std::string& message) {
    if (visit.step == 0) {
      if (!message.starts_with(kMagic)) return false;
      Unpacker from(std::string_view(message).substr(kMagic.size(), 8));
      visit.peer = static_cast<int>(from.u32());
      const bool expected = from.u32() == static_cast<uint32_t>(options_.rank) &&
                            visit.peer > options_.rank && visit.peer < options_.size;
      if (!expected) return false;
      visit.hello = message;
      visit.nonce = random_bytes(kNonce);
      visit.step = 1;
      visit.wanted = kProof;
      return say(visit, visit.nonce + proof(visit, "host", visit.nonce));
    }
    const bool proven = same_bytes(message, proof(visit, "caller", visit.nonce)) &&
                        !links_[static_cast<size_t>(visit.peer)];
    visit.step = 2;
    return proven && say(visit, "!");
  }

  void finish(const std::shared_ptr<Visit>& visit) {
    loop_.forget(visit->fd.get());
    loop_.cancel(visit->timer);
    links_[static_cast<size_t>(visit->peer)] = std::move(visit->fd);
    guests_.remove(visit);
  }

  DoorOptions options_;
  Deadline deadline_;
  EventLoop loop_;
  Fd listener_;
  std::string key_;
  std::vector<Endpoint> endpoints_;
  std::vector<Fd> links_;
  std::list<std::shared_ptr<Visit>> guests_;  // not yet proven, oldest first
};

}  // namespace

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
  return Mesh(options, store).run();
}

}  // namespace horon
