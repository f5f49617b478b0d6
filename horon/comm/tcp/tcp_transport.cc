#include "horon/comm/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <set>
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
  bool noted = false;  // the other ranks know which ranks we wait for
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
        PeerWatch::Options{options.rank, options.size, options.host_id}, *store,
        Deadline::after(options.start_timeout), [this](int rank) { on_death(rank); },
        [this] { return on_tick(); });
  }

  // Says goodbye first, so that the end of this process is not reported as a failure.
  ~TcpTransport() override {
    if (!process_.is_here()) return;  // a forked child does not speak for its parent
    board_.say_goodbye();
    const std::lock_guard lock(mutex_);
    if (!is_dead()) lines_.leave();
  }

  std::string name() const override { return "tcp"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  bool takes_early() const override { return true; }
  uint64_t chunk_bytes(size_t members) const override { return kPartBytes * members; }
  void mark_dead(const Failure& failure) override {
    board_.report(failure);
    const std::lock_guard lock(mutex_);
    wake_all();
  }
  std::optional<Failure> failure() const override { return board_.seen(); }
  double seconds_encrypting() const override {
    const std::lock_guard lock(mutex_);
    return lines_.seconds_sealing();
  }

  void open_flow(uint64_t flow, const std::vector<int>& members) override {
    const std::lock_guard lock(mutex_);
    flows_[flow] = members;
  }
  void close_flow(uint64_t flow) override {
    const std::lock_guard lock(mutex_);
    flows_.erase(flow);
    if (process_.is_here() && !is_dead()) lines_.close_flow(flow);
  }

  void connect(const std::vector<int>& peers) override {
    const Deadline deadline = Deadline::after(options_.start_timeout);
    {
      const std::lock_guard finding(finding_);  // waits for the store, so not under mutex_
      lines_.find(peers, deadline);
    }
    std::unique_lock lock(mutex_);
    lines_.call(peers);
    while (true) {
      std::vector<int> missing;
      for (int peer : peers) {
        if (peer != options_.rank && !lines_.is_connected(peer)) missing.push_back(peer);
      }
      if (missing.empty()) break;
      if (is_dead()) board_.raise("connecting");
      if (deadline.passed()) throw TimeoutError(lines_.describe_missing(missing), missing);
      drive(lock, nullptr, deadline);
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
    std::unique_lock lock(mutex_);
    flights_.push_back(&flight);
    if (std::exchange(asleep_, false)) watch_->wake();
    try {
      post(flight, exchange.messages);
      fly(lock, flight, exchange);
    } catch (...) {  // the caller failed: the others wait for messages that will not be sent
      if (!lock.owns_lock()) lock.lock();
      flights_.remove(&flight);
      if (broken_peer_ < 0) broken_peer_ = options_.rank;
      wake_all();
      throw;
    }
    flights_.remove(&flight);
    const bool is_done = flight.open == 0;
    hand_over();
    lock.unlock();
    if (!is_done) fail(flight, exchange);
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

  bool is_dead() const { return broken_peer_ >= 0 || !dead_.empty() || board_.seen().has_value(); }

  void connect_to_peers_of(const Exchange& exchange) {
    std::vector<int> missing;
    {
      const std::lock_guard lock(mutex_);
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
        lock.lock();
        post(flight, more);
        continue;
      }
      if (flight.open == 0 || is_dead() || is_stuck(flight)) return;
      const auto waited = Clock::now() - flight.last_progress;
      if (waited >= exchange.timeout) return;
      if (waited >= std::min<Clock::duration>(exchange.timeout / 2, kLongWait))
        note_waiting(lock, flight);
      drive(lock, &flight, Deadline::after(exchange.timeout - waited));
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
    if (driving_) {
      auto& turn = flight != nullptr ? flight->turn : idle_turn_;
      turn.wait_for(lock, flight != nullptr ? limit : std::min<Clock::duration>(limit, kRetry));
      return;
    }
    driving_ = true;
    const bool spins_everywhere = lines_.are_few();
    const auto spin_until = Clock::now() + options_.spin;
    bool moved = lines_.work(spins_everywhere);
    while (!moved && !(flight != nullptr && flight->has_news()) && !is_dead()) {
      const bool spins = Clock::now() < spin_until;
      if (spins && spins_everywhere) {
        lock.unlock();  // other threads may post meanwhile
        lock.lock();
      } else {
        lock.unlock();
        lines_.sleep(spins ? Milliseconds(0) : std::chrono::ceil<Milliseconds>(limit));
        lock.lock();
      }
      if (is_dead()) break;  // callers may have left, with their memory
      moved = lines_.work(spins && spins_everywhere);
      if (!spins) break;
    }
    driving_ = false;
    for (Flight* other : flights_) {
      if (other != flight && other->has_news()) other->turn.notify_one();
    }
  }

  // Another thread may have to take the token now.
  void hand_over() {
    if (driving_) return;
    for (Flight* other : flights_) {
      if (!other->has_news()) return other->turn.notify_one();
    }
  }

  void wake_all() {
    for (Flight* flight : flights_) flight->turn.notify_one();
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

  [[noreturn]] void fail(const Flight& flight, const Exchange& exchange) {
    std::vector<int> peers;
    for (const bool sends : {false, true}) {  // who sent nothing; else, who accepted nothing
      for (const Piece& piece : flight.pieces) {
        if (piece.is_send == sends && !piece.is_done()) peers.push_back(piece.peer);
      }
      if (!peers.empty()) break;
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    settle(peers, exchange.timeout);
    {
      const std::lock_guard lock(mutex_);
      wake_all();
    }
    board_.raise(exchange.doing());
  }

  // What happened, for all ranks.
  void settle(const std::vector<int>& peers, Milliseconds timeout) {
    int broken = -1;
    std::string why;
    std::vector<int> dead;
    std::vector<int> gone;
    {
      const std::lock_guard lock(mutex_);
      broken = broken_peer_;
      why = broken_why_;
      dead = dead_;
      for (int peer : peers) {
        if (gone_.contains(peer)) gone.push_back(peer);
      }
    }
    if (board_.seen()) return;
    if (!dead.empty()) {
      board_.report({FailureKind::kLost, {dead.front()}});
    } else if (!gone.empty()) {
      board_.report({FailureKind::kLeft, {gone.front()}});
    } else if (broken >= 0) {
      if (why.empty()) return board_.report_broken(broken);
      log_.warn("tcp: connection with rank {}: {}", broken, why);
      board_.report({FailureKind::kForged, {broken}});
    } else {
      board_.report({FailureKind::kTimeout, board_.find_culprits(peers), timeout});
    }
  }

  void on_death(int rank) {
    if (board_.has_left(rank)) return;
    {
      const std::lock_guard lock(mutex_);
      dead_.push_back(rank);
      if (flights_.empty()) return;
    }
    board_.report({FailureKind::kLost, {rank}});
    const std::lock_guard lock(mutex_);
    wake_all();
  }

  // Every 100 ms while there are exchanges; asleep after a tick without any.
  bool on_tick() {
    {
      const std::lock_guard lock(mutex_);
      asleep_ = flights_.empty();
      if (asleep_) return false;
    }
    if (!board_.look(Milliseconds(0))) return true;
    const std::lock_guard lock(mutex_);
    wake_all();
    return true;
  }

  void note_waiting(std::unique_lock<std::mutex>& lock, Flight& flight) {
    if (std::exchange(flight.noted, true)) return;
    std::vector<int> peers;
    for (const Piece& piece : flight.pieces) {
      if (!piece.is_send && !piece.is_done()) peers.push_back(piece.peer);
    }
    lock.unlock();
    board_.note_waiting(peers);
    lock.lock();
  }

  static constexpr Milliseconds kRetry{5};

  OwnProcess process_;
  TcpOptions options_;
  Log log_;
  FailureBoard board_;
  std::mutex finding_;
  mutable std::mutex mutex_;  // guards all below but the watch
  tcp::Lines lines_;
  bool driving_ = false;  // the token
  std::condition_variable idle_turn_;
  bool asleep_ = true;
  std::map<uint64_t, std::vector<int>> flows_;
  std::list<Flight*> flights_;
  std::vector<int> dead_;  // processes of this host
  std::set<int> left_;     // said goodbye
  std::set<int> gone_;     // and their connections are closed
  int broken_peer_ = -1;   // at the other end of the first connection that broke
  std::string broken_why_;
  std::unique_ptr<PeerWatch> watch_;  // last: its thread uses all the others
};

}  // namespace

std::shared_ptr<Transport> make_tcp_transport(const TcpOptions& options,
                                              const std::shared_ptr<Store>& store, const Log& log) {
  return std::make_shared<TcpTransport>(options, store, log);
}

}  // namespace horon
