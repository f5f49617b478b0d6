#include "horon/net/store_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <list>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/net/store_table.h"
#include "horon/net/tls.h"
#include "horon/net/wire.h"

namespace horon {

// How far a connection has come; each stage has its own list, oldest first.
enum class Stage { kUnauthenticated, kHalfOpen, kMember };

class StoreServer::Impl {
 public:
  Impl(EventLoop& loop, const Secret& secret, const Options& options, Log log)
      : loop_(loop), secret_(secret), options_(options), log_(std::move(log)) {
    port_ = options.port;
    for (const std::string& address : options.addresses) add_address(address);
  }

  ~Impl() {
    for (Stage stage : {Stage::kUnauthenticated, Stage::kHalfOpen, Stage::kMember}) {
      while (!list(stage).empty()) drop(*list(stage).front());
    }
    for (const Fd& listener : listeners_) loop_.forget(listener.get());
    tell_refused();  // those of the last second
    loop_.cancel(log_timer_);
    loop_.cancel(pause_timer_);
  }

  void add_address(const std::string& address) {
    for (const Endpoint& there : endpoints_) {
      if (there.host == address) return;
    }
    Fd listener = open_listener(address);
    endpoints_.push_back(local_endpoint(listener.get()));
    if (port_ == 0) port_ = endpoints_.back().port;
    const int fd = listener.get();
    loop_.watch(fd, EPOLLIN, [this, fd](uint32_t) { accept_some(fd); });
    listeners_.push_back(std::move(listener));
  }

  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  size_t members() const { return members_.size(); }
  uint64_t refused() const { return refused_; }

 private:
  // The same port on every address, unless it was chosen by chance and is taken here.
  Fd open_listener(const std::string& address) const {
    try {
      return listen_on(address, port_);
    } catch (const IoError&) {
      if (options_.port != 0 || port_ == 0) throw;
      return listen_on(address, 0);
    }
  }

  struct Connection {
    Connection(Fd socket, const Secret& secret)
        : fd(std::move(socket)), tls(TlsSide::kServer, secret), frames(kStoreFrame) {}
    Fd fd;
    TlsSession tls;
    FrameReader frames;
    std::string out;  // not yet taken by the kernel
    Stage stage = Stage::kUnauthenticated;
    EventLoop::Timer handshake = 0;
    std::optional<StoreRequest> pending;  // a get that waits for `missing`
    std::string missing;
    EventLoop::Timer patience = 0;
    std::list<std::shared_ptr<Connection>>::iterator place;
  };
  using List = std::list<std::shared_ptr<Connection>>;

  List& list(Stage stage) {
    if (stage == Stage::kUnauthenticated) return unauthenticated_;
    return stage == Stage::kHalfOpen ? half_open_ : members_;
  }

  void accept_some(int listener) {
    for (int i = 0; i < 64; ++i) {
      bool busy = false;
      Fd socket = accept_from(listener, &busy);
      if (busy && !unauthenticated_.empty()) {  // no descriptor left: drop an unauthenticated one
        refuse(*unauthenticated_.front(), "out of descriptors");
        continue;
      }
      if (busy) pause();
      if (!socket) return;
      greet(std::move(socket));
    }
  }

  // Without descriptors and unauthenticated connections to close: look again soon instead of
  // spinning.
  void pause() {
    for (const Fd& listener : listeners_) loop_.change(listener.get(), 0);
    pause_timer_ = loop_.after(Milliseconds(50), [this] {
      for (const Fd& listener : listeners_) loop_.change(listener.get(), EPOLLIN);
    });
  }

  void greet(Fd socket) {
    auto connection = std::make_shared<Connection>(std::move(socket), secret_);
    Connection& peer = *connection;
    unauthenticated_.push_back(connection);
    peer.place = std::prev(unauthenticated_.end());
    peer.handshake = loop_.after(options_.handshake_timeout,
                                 [this, &peer] { refuse(peer, "silent for too long"); });
    loop_.watch(peer.fd.get(), EPOLLIN,
                [this, connection](uint32_t events) { on_event(connection, events); });
    if (unauthenticated_.size() > options_.max_unauthenticated)
      refuse(*unauthenticated_.front(), "too many unauthenticated connections");
  }

  void move_to(Connection& peer, Stage stage) {
    list(stage).splice(list(stage).end(), list(peer.stage), peer.place);
    peer.stage = stage;
    if (stage == Stage::kMember) loop_.cancel(peer.handshake);
    if (stage == Stage::kHalfOpen && half_open_.size() > options_.max_unauthenticated)
      refuse(*half_open_.front(), "too many unauthenticated connections");
  }

  // `connection` is held: a handler may drop it.
  void on_event(const std::shared_ptr<Connection>& connection, uint32_t events) {
    Connection& peer = *connection;
    try {
      if ((events & EPOLLOUT) != 0) flush(peer);
      if (peer.fd && (events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) receive(peer);
    } catch (const Error& error) {
      if (peer.stage == Stage::kMember) {
        log_.warn("store: a member's connection is closed: {}", error.what());
        if (peer.fd) drop(peer);
      } else if (peer.fd) {
        refuse(peer, error.what());
      }
    }
  }

  void receive(Connection& peer) {
    char piece[65536];
    // No more than an unauthenticated peer may send: an honest peer's next words can wait in the
    // kernel.
    const size_t room = std::min(sizeof(piece), peer.tls.room());
    if (room == 0) return refuse(peer, "too many bytes without a proof");
    const ssize_t got = recv(peer.fd.get(), piece, room, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return let_go(peer);
    peer.tls.feed({piece, static_cast<size_t>(got)});
    if (peer.stage == Stage::kUnauthenticated && peer.tls.is_half_open())
      move_to(peer, Stage::kHalfOpen);
    if (!peer.fd) return;
    if (peer.stage == Stage::kHalfOpen && peer.tls.is_open()) {
      move_to(peer, Stage::kMember);
      peer.tls.write(make_frame(kStoreWelcome));
    }
    if (peer.stage == Stage::kMember) peer.frames.feed(peer.tls.read());
    serve(peer);
    if (peer.fd) flush(peer);
  }

  // Answers requests in their order; a get that must wait holds up what follows it.
  void serve(Connection& peer) {
    while (peer.fd && !peer.pending) {
      const auto frame = peer.frames.next();
      if (!frame) return;
      const StoreRequest request = unpack_request(*frame);
      const auto reply = table_.answer(request, peer.missing);
      if (reply) {
        send(peer, *reply);
        if (reply->status == StoreStatus::kOk &&
            (request.op == StoreOp::kSet || request.op == StoreOp::kAdd))
          wake(request.keys.front());
      } else {
        wait(peer, request);
      }
    }
  }

  void wait(Connection& peer, const StoreRequest& request) {
    peer.pending = request;
    waiting_.emplace(peer.missing, &peer);
    peer.patience = loop_.after(Milliseconds(request.patience_ms), [this, &peer] {
      StoreReply reply;
      reply.status = StoreStatus::kTimeout;
      reply.why = peer.missing;
      stop_waiting(peer);
      answer_late(peer, reply);
    });
  }

  void stop_waiting(Connection& peer) {
    if (!peer.pending) return;
    loop_.cancel(peer.patience);
    const auto [from, to] = waiting_.equal_range(peer.missing);
    for (auto at = from; at != to; ++at) {
      if (at->second == &peer) {
        waiting_.erase(at);
        break;
      }
    }
    peer.pending.reset();
  }

  // Those who waited for `key` are answered, or wait for their next key.
  void wake(const std::string& key) {
    std::vector<std::shared_ptr<Connection>> woken;
    const auto [from, to] = waiting_.equal_range(key);
    for (auto at = from; at != to; ++at) woken.push_back(*at->second->place);
    for (const auto& connection : woken) {
      Connection& peer = *connection;
      if (!peer.pending) continue;  // answered meanwhile
      std::string missing;
      const auto reply = table_.answer(*peer.pending, missing);
      if (reply) {
        stop_waiting(peer);
        answer_late(peer, *reply);
      } else {
        waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const auto& entry) { return entry.second == &peer; }));
        peer.missing = missing;
        waiting_.emplace(missing, &peer);
      }
    }
  }

  void answer_late(Connection& peer, const StoreReply& reply) {
    const auto held = *peer.place;
    try {
      send(peer, reply);
      serve(peer);
      if (peer.fd) flush(peer);
    } catch (const Error& error) {
      log_.warn("store: a member's connection is closed: {}", error.what());
      if (peer.fd) drop(peer);
    }
  }

  static void send(Connection& peer, const StoreReply& reply) {
    peer.tls.write(make_frame(pack(reply)));
  }

  void flush(Connection& peer) {
    peer.out += peer.tls.take_output();
    size_t done = 0;
    while (done < peer.out.size()) {
      const ssize_t put =
          ::send(peer.fd.get(), peer.out.data() + done, peer.out.size() - done, MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno == EAGAIN) break;
      if (put < 0) return let_go(peer);
      done += static_cast<size_t>(put);
    }
    peer.out.erase(0, done);
    // One that does not read its answers gets no more until it does.
    const uint32_t in = peer.out.size() < kStoreFrame ? static_cast<uint32_t>(EPOLLIN) : 0;
    loop_.change(peer.fd.get(), in | (peer.out.empty() ? 0 : static_cast<uint32_t>(EPOLLOUT)));
  }

  // It left by itself. Only one that had said something, and not what a holder of the secret says,
  // was unauthenticated: ranks die on their way in, too.
  void let_go(Connection& peer) {
    const bool said_nothing = peer.tls.room() == TlsSession::kMaxUnproven;
    if (peer.stage == Stage::kUnauthenticated && !said_nothing) return refuse(peer, "left");
    drop(peer);
  }

  void drop(Connection& peer) {
    stop_waiting(peer);
    loop_.cancel(peer.handshake);
    const auto held = *peer.place;
    list(peer.stage).erase(peer.place);
    loop_.forget(peer.fd.get());
    peer.fd.reset();
  }

  void refuse(Connection& peer, const std::string& why) {
    const std::string alert = peer.tls.take_output();  // tells an honest mistake why
    if (!alert.empty()) ::send(peer.fd.get(), alert.data(), alert.size(), MSG_NOSIGNAL);
    ++refused_;
    last_refused_ = fmt::format("{} ({})", peer_endpoint(peer.fd.get()).host, why);
    drop(peer);
    if (log_timer_ == 0) tell_refused();
  }

  // One line a second however many come.
  void tell_refused() {
    if (refused_ == told_refused_) return;
    log_.warn("store: refused {} unauthenticated connection(s), the last from {}",
              refused_ - told_refused_, last_refused_);
    told_refused_ = refused_;
    log_timer_ = loop_.after(std::chrono::seconds(1), [this] {
      log_timer_ = 0;
      tell_refused();
    });
  }

  EventLoop& loop_;
  Secret secret_;
  Options options_;
  Log log_;
  int port_ = 0;
  std::vector<Fd> listeners_;
  std::vector<Endpoint> endpoints_;
  StoreTable table_;
  List unauthenticated_;
  List half_open_;
  List members_;
  std::multimap<std::string, Connection*> waiting_;
  uint64_t refused_ = 0;
  uint64_t told_refused_ = 0;
  std::string last_refused_;
  EventLoop::Timer log_timer_ = 0;
  EventLoop::Timer pause_timer_ = 0;
};

StoreServer::StoreServer(EventLoop& loop, const Secret& secret, const Options& options, Log log)
    : impl_(std::make_unique<Impl>(loop, secret, options, std::move(log))) {}
StoreServer::~StoreServer() = default;
std::vector<Endpoint> StoreServer::endpoints() const { return impl_->endpoints(); }
void StoreServer::add_address(const std::string& address) { impl_->add_address(address); }
size_t StoreServer::members() const { return impl_->members(); }
uint64_t StoreServer::refused() const { return impl_->refused(); }

StoreThread::StoreThread(const Secret& secret, const StoreServer::Options& options, Log log,
                         const Invite& before_serving)
    : server_(std::make_unique<StoreServer>(loop_, secret, options, std::move(log))),
      endpoints_(server_->endpoints()) {
  if (before_serving) before_serving(endpoints_);
  thread_ = start_thread("horon-store", [this](const std::stop_token& stop) {
    while (!stop.stop_requested() && loop_.run_once(Deadline::never())) {
    }
    const Deadline deadline = Deadline::after(linger_);
    while (server_->members() > 0 && !deadline.passed()) loop_.run_once(deadline);
    server_.reset();
  });
}

StoreThread::~StoreThread() {
  thread_.request_stop();
  loop_.post([] {});
}

}  // namespace horon
