#include "horon/comm/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/comm/p2p/failure_board.h"
#include "horon/comm/p2p/peer_watch.h"
#include "horon/comm/tcp/lines.h"

namespace horon {
namespace tcp {

// One exchange in progress. Guarded by the transport's mutex.
struct Flight {
  uint64_t flow = 0;
  bool tells = false;            // `received` of the exchange is set
  std::deque<Piece> pieces;      // by message
  size_t open = 0;               // not done
  std::vector<size_t> received;  // done, not yet reported
  Clock::time_point last_progress = Clock::now();
  bool noted = false;       // others were told whom we wait for
  bool is_waiting = false;  // for its turn
  bool is_called = false;   // and it is
  std::condition_variable turn;
  bool has_news() const { return open == 0 || !received.empty(); }
};

}  // namespace tcp

namespace {

using tcp::Flight;
using tcp::Piece;

// After this time the other ranks are told which ranks we wait for.
constexpr auto kLongWait = std::chrono::seconds(1);
constexpr Milliseconds kLongestSleep{1000};
constexpr Milliseconds kIdleTick{1000};      // without exchanges, sockets are read this often
constexpr Milliseconds kGoodbye{1000};       // at the end, for what was sent to arrive
constexpr uint64_t kPartBytes = 512U << 10;  // of one member, in a chunk

class TcpTransport final : public Transport {
 public:
  TcpTransport(const TcpOptions& options, const std::shared_ptr<Store>& store, const Log& log)
      : options_(options),
        log_(log),
        board_(store, options.rank),
        lines_(line_options(options), *store,
               {.moved = [this](Piece& piece) { on_moved(piece); },
                .broken = [this](int peer, const std::string& why) { on_broken(peer, why); },
                .left = [this](int peer) { left_.insert(peer); }}) {
    watch_ = std::make_unique<PeerWatch>(
        PeerWatch::Options{options.rank, options.size, options.host_id, kIdleTick}, *store,
        Deadline::after(options.start_timeout), [this](int rank) { on_death(rank); },
        [this] { return on_tick(); });
  }

  // Says goodbye first, so that the end of this process is not reported as a failure.
  ~TcpTransport() override {
    if (!process_.is_here()) return;  // a forked child does not speak for its parent
    board_.say_goodbye();
    const auto lock = enter();
    if (!is_dead()) lines_.leave(Deadline::after(kGoodbye));
  }

  std::string name() const override { return "tcp"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  bool takes_early() const override { return true; }
  uint64_t chunk_bytes(size_t members) const override { return kPartBytes * members; }
  void mark_dead(const Failure& failure) override {
    board_.report(failure);
    const auto lock = enter();
    wake_all();
  }
  std::optional<Failure> failure() const override { return board_.seen(); }
  double seconds_encrypting() const override {
    const auto lock = enter();
    return lines_.seconds_sealing();
  }

  void open_flow(uint64_t flow, const std::vector<int>& members) override {
    const auto lock = enter();
    if (!flows_.emplace(flow, members).second)
      throw Error(fmt::format("tcp: flow {:x} is open already", flow));
  }
  void close_flow(uint64_t flow) override {
    const auto lock = enter();
    flows_.erase(flow);
    if (process_.is_here() && !is_dead()) lines_.close_flow(flow);
  }

  void connect(const std::vector<int>& peers) override {
    const Deadline deadline = Deadline::after(options_.start_timeout);
    {
      const std::lock_guard finding(finding_);  // waits for the store, so not under mutex_
      lines_.find(peers, deadline);
    }
    auto lock = enter();
    has_found_ = true;
    lines_.call(peers);
    if (driving_) lines_.wake();  // it may sleep for longer than calls can wait
    while (true) {
      std::vector<int> missing;
      for (int peer : peers) {
        if (peer != options_.rank && !lines_.is_connected(peer)) missing.push_back(peer);
      }
      if (missing.empty()) break;
      if (is_dead()) {
        if (!board_.seen()) settle(lock, missing, options_.start_timeout);
        board_.raise("connecting");
      }
      if (deadline.passed()) {
        hand_over();
        throw TimeoutError(lines_.describe_missing(missing), missing);
      }
      drive(lock, nullptr, deadline);
      give_way(lock);
    }
    hand_over();
  }

  void exchange(const Exchange& exchange) override {
    if (board_.seen()) board_.raise(exchange.doing());
    require(process_.is_here(), "tcp: a forked child cannot use its parent's connections");
    connect_to_peers_of(exchange);
    Flight flight;
    flight.flow = exchange.flow;
    flight.tells = static_cast<bool>(exchange.received);
    auto lock = enter();
    flights_.push_back(&flight);
    if (std::exchange(asleep_, false)) watch_->wake();
    try {
      post(flight, exchange.messages);
      fly(lock, flight, exchange);
    } catch (...) {  // the caller failed: the others wait for messages that will not be sent
      if (!lock.owns_lock()) lock.lock();
      lines_.abandon();
      flights_.remove(&flight);
      if (broken_peer_ < 0) broken_peer_ = options_.rank;
      wake_all();
      lock.unlock();
      board_.report({FailureKind::kLost, {options_.rank}});
      throw;
    }
    if (flight.open != 0) lines_.abandon();  // nobody touches our memory any more
    flights_.remove(&flight);
    hand_over();
    if (flight.open != 0) {
      settle(lock, waited_for(flight), exchange.timeout);
      wake_all();
      board_.raise(exchange.doing());
    }
    lock.unlock();
    if (flight.noted) board_.note_waiting({});
  }

 private:
  static tcp::LineOptions line_options(const TcpOptions& options) {
    tcp::LineOptions lines;
    lines.door = {.rank = options.rank,
                  .size = options.size,
                  .interface = options.interface,
                  .one_host = options.one_host,
                  .start_timeout = options.start_timeout,
                  .transport = "tcp"};
    lines.sockets = options.sockets;
    lines.is_private = options.is_private;
    lines.records_per_key = std::max<uint64_t>(1, options.key_bytes / (256U << 10));
    lines.congestion = options.congestion;
    return lines;
  }

  bool is_dead() const {
    return broken_peer_ >= 0 || !dead_.empty() || lines_.is_abandoned() ||
           board_.seen().has_value();
  }

  // Locks the mutex; drivers make way for those who wait here.
  std::unique_lock<std::mutex> enter() const {
    std::unique_lock lock(mutex_, std::defer_lock);
    enter(lock);
    return lock;
  }
  void enter(std::unique_lock<std::mutex>& lock) const {
    ++entering_;
    lock.lock();
    --entering_;
  }
  void give_way(std::unique_lock<std::mutex>& lock) const {
    if (entering_ == 0) return;
    lock.unlock();
    for (int i = 0; i < kMostYields && entering_ != 0; ++i) std::this_thread::yield();
    lock.lock();
  }

  void connect_to_peers_of(const Exchange& exchange) {
    std::vector<int> missing;
    {
      const auto lock = enter();
      for (const Message& message : exchange.messages) {
        if (!lines_.is_connected(message.peer)) missing.push_back(message.peer);
      }
      if (missing.empty() || is_dead()) return;
      missing = flows_[exchange.flow];  // all of them will be needed
    }
    connect(missing);
  }

  void post(Flight& flight, std::span<const Message> messages) {
    const size_t first = flight.pieces.size();
    for (const Message& message : messages) {
      Piece piece;
      piece.peer = message.peer;
      piece.is_send = message.is_send;
      piece.data = static_cast<std::byte*>(message.data);
      piece.bytes = message.bytes;
      piece.flight = &flight;
      piece.index = flight.pieces.size();
      flight.pieces.push_back(piece);
      if (piece.bytes != 0) ++flight.open;
    }
    for (size_t i = first; i < flight.pieces.size(); ++i) {
      if (flight.pieces[i].bytes != 0) lines_.post(flight.flow, flight.pieces[i]);
    }
    int last = -1;
    for (const Message& message : messages) {
      if (message.peer != last) lines_.flush(message.peer);
      last = message.peer;
    }
    for (size_t i = first; i < flight.pieces.size() && flight.tells; ++i) {
      const bool is_empty = flight.pieces[i].bytes == 0 && !flight.pieces[i].is_send;
      if (is_empty) flight.received.push_back(i);
    }
  }

  // Until all is done, or the transport is dead, or the flight has waited for too long.
  void fly(std::unique_lock<std::mutex>& lock, Flight& flight, const Exchange& exchange) {
    std::vector<Message> more;
    while (true) {
      if (!flight.received.empty()) {
        const std::vector<size_t> received = std::exchange(flight.received, {});
        hand_over();  // other exchanges continue while we compute
        lock.unlock();
        more.clear();
        for (size_t index : received) exchange.received(index, flight.pieces[index].data, more);
        enter(lock);
        post(flight, more);
        continue;
      }
      if (flight.open == 0 || is_dead() || is_stuck(flight)) return;
      const auto waited = Clock::now() - flight.last_progress;
      if (waited >= exchange.timeout) return;
      if (waited >= std::min<Clock::duration>(exchange.timeout / 2, kLongWait))
        note_waiting(lock, flight);
      drive(lock, &flight, Deadline::after(exchange.timeout - waited));
      give_way(lock);
    }
  }

  // Waits for a peer that has left.
  bool is_stuck(const Flight& flight) const {
    return !gone_.empty() &&
           std::any_of(flight.pieces.begin(), flight.pieces.end(), [&](const Piece& piece) {
             return !piece.is_done() && gone_.contains(piece.peer);
           });
  }

  // Moves the bytes of all exchanges if it gets the token; else waits until another thread has.
  void drive(std::unique_lock<std::mutex>& lock, Flight* flight, Deadline deadline) {
    const auto limit = std::min<Clock::duration>(deadline.left(), kLongestSleep);
    if (driving_ && flight == nullptr) {  // the driver makes connections, too
      lock.unlock();
      std::this_thread::sleep_for(std::min<Clock::duration>(limit, kRetry));
      return enter(lock);
    }
    if (driving_) {
      flight->is_waiting = true;
      flight->turn.wait_for(lock, limit);
      flight->is_waiting = false;
      if (std::exchange(flight->is_called, false)) --entering_;
      return;
    }
    driving_ = true;
    try {
      move_bytes(lock, flight, limit);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      driving_ = false;
      hand_over();
      throw;
    }
    driving_ = false;
    for (Flight* other : flights_) {
      if (other != flight && other->has_news()) call(*other);
    }
  }

  // Wakes it; it enters next.
  void call(Flight& flight) const {
    if (flight.is_waiting && !std::exchange(flight.is_called, true)) ++entering_;
    flight.turn.notify_one();
  }

  // The driver's part: until something moved, or for as long as it may sleep.
  void move_bytes(std::unique_lock<std::mutex>& lock, const Flight* flight, Clock::duration limit) {
    const bool spins_everywhere = lines_.are_few();
    const auto spin_until = Clock::now() + options_.spin;
    bool moved = lines_.work(spins_everywhere);
    while (!moved && !(flight != nullptr && flight->has_news()) && !is_dead()) {
      const bool spins = Clock::now() < spin_until;
      if (spins && spins_everywhere) {
        give_way(lock);
      } else {
        const auto most = lines_.is_calling() ? std::min<Clock::duration>(limit, kRetry) : limit;
        lock.unlock();
        lines_.sleep(spins ? Milliseconds(0) : std::chrono::ceil<Milliseconds>(most));
        lock.lock();
      }
      if (is_dead()) break;  // callers may have left, with their memory
      moved = lines_.work(spins && spins_everywhere);
      if (!spins) break;
    }
  }

  // Another thread may have to take the token now.
  void hand_over() {
    if (driving_) return;
    for (Flight* other : flights_) {
      if (other->is_waiting && !other->has_news()) return call(*other);
    }
  }

  void wake_all() {
    for (Flight* flight : flights_) call(*flight);
    lines_.wake();
  }

  void on_moved(Piece& piece) {
    Flight& flight = *piece.flight;
    flight.last_progress = Clock::now();
    if (!piece.is_done()) return;
    --flight.open;
    if (!piece.is_send && flight.tells) flight.received.push_back(piece.index);
  }

  void on_broken(int peer, const std::string& why) {
    if (left_.contains(peer)) {
      gone_.insert(peer);
    } else if (broken_peer_ < 0) {
      broken_peer_ = peer;
      broken_why_ = why;
    }
    wake_all();
  }

  // Who sent us nothing; failing that, who took nothing.
  static std::vector<int> waited_for(const Flight& flight) {
    std::vector<int> peers;
    for (const bool sends : {false, true}) {
      for (const Piece& piece : flight.pieces) {
        if (piece.is_send == sends && !piece.is_done()) peers.push_back(piece.peer);
      }
      if (!peers.empty()) break;
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

  // Finds out what happened and tells all ranks; the first exchange that fails does it for all. The
  // board knows it afterwards.
  void settle(std::unique_lock<std::mutex>& lock, const std::vector<int>& peers,
              Milliseconds timeout) {
    if (settling_) return settled_.wait(lock, [&] { return !settling_; });
    settling_ = true;
    const int broken = broken_peer_;
    const std::string why = broken_why_;
    const std::vector<int> dead = dead_;
    std::vector<int> gone;
    for (int peer : peers) {
      if (gone_.contains(peer)) gone.push_back(peer);
    }
    lock.unlock();
    if (!board_.seen()) {
      if (!dead.empty()) {
        board_.report({FailureKind::kLost, {dead.front()}});
      } else if (!gone.empty()) {
        board_.report({FailureKind::kLeft, {gone.front()}});
      } else if (broken >= 0 && why.empty()) {
        board_.report_broken(broken);
      } else if (broken >= 0) {
        log_.warn("tcp: connection with rank {}: {}", broken, why);
        board_.report({FailureKind::kForged, {broken}});
      } else {
        board_.report({FailureKind::kTimeout, board_.find_culprits(peers), timeout});
      }
    }
    lock.lock();
    settling_ = false;
    settled_.notify_all();
  }

  void on_death(int rank) {
    if (board_.has_left(rank)) return;
    {
      const auto lock = enter();
      dead_.push_back(rank);
      if (flights_.empty()) return;
    }
    board_.report({FailureKind::kLost, {rank}});
    const auto lock = enter();
    wake_all();
  }

  // Every 100 ms while there are exchanges or bytes come, and every kIdleTick without.
  bool on_tick() {
    {
      const auto lock = enter();
      asleep_ = flights_.empty();
      if (asleep_) return read_while_idle();
    }
    if (!board_.look(Milliseconds(0))) return true;
    const auto lock = enter();
    wake_all();
    return true;
  }

  bool read_while_idle() {
    bool has_moved = false;
    if (driving_ || !has_found_ || is_dead()) return has_moved;
    try {
      lines_.sleep(Milliseconds(0));
      while (lines_.work(false)) {
        has_moved = true;
        lines_.sleep(Milliseconds(0));
      }
    } catch (const std::exception& error) {  // the next exchange meets it
      log_.debug("tcp: {}", error.what());
    }
    return has_moved;
  }

  void note_waiting(std::unique_lock<std::mutex>& lock, Flight& flight) {
    if (std::exchange(flight.noted, true)) return;
    std::vector<int> peers;
    for (const Piece& piece : flight.pieces) {
      if (!piece.is_send && !piece.is_done()) peers.push_back(piece.peer);
    }
    hand_over();
    lock.unlock();
    board_.note_waiting(peers);
    enter(lock);
  }

  static constexpr Milliseconds kRetry{5};
  static constexpr int kMostYields = 1000;

  OwnProcess process_;
  TcpOptions options_;
  Log log_;
  FailureBoard board_;
  std::mutex finding_;
  mutable std::atomic<int> entering_{0};  // threads that want the mutex, or are called
  mutable std::mutex mutex_;              // guards all below but the watch
  tcp::Lines lines_;
  bool driving_ = false;    // the token
  bool has_found_ = false;  // peers' addresses and the key: nobody is let in before
  bool asleep_ = true;
  std::map<uint64_t, std::vector<int>> flows_;
  std::list<Flight*> flights_;
  std::vector<int> dead_;  // processes of this host
  std::set<int> left_;     // said goodbye
  std::set<int> gone_;     // and their connections are closed
  int broken_peer_ = -1;   // at the other end of the first connection that broke
  std::string broken_why_;
  bool settling_ = false;
  std::condition_variable settled_;
  std::unique_ptr<PeerWatch> watch_;  // last: its thread uses all the others
};

}  // namespace

std::shared_ptr<Transport> make_tcp_transport(const TcpOptions& options,
                                              const std::shared_ptr<Store>& store, const Log& log) {
  return std::make_shared<TcpTransport>(options, store, log);
}

}  // namespace horon
