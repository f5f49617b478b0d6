#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "horon/base/api.h"
#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/base/version.h"
#include "horon/comm/gloo/gloo_mesh.h"
#include "horon/comm/gloo/gloo_part.h"
#include "horon/comm/p2p/door.h"
#include "horon/comm/p2p/failure_board.h"
#include "horon/comm/p2p/peer_watch.h"

namespace horon {
namespace {

using gloo::transport::UnboundBuffer;

// Gloo writes to sockets without MSG_NOSIGNAL: a peer that is gone would end our process by
// SIGPIPE. While this lives the signal is held back on the calling thread and on threads that it
// starts; what came in meanwhile is dropped. The process's own handling of the signal stays as it
// is.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

std::shared_ptr<gloo::Context> make_context(const GlooOptions& options, Store& store) {
  std::vector<Fd> links = connect_mesh({.rank = options.rank,
                                        .size = options.size,
                                        .interface = options.interface,
                                        .one_host = options.one_host,
                                        .start_timeout = options.start_timeout,
                                        .transport = "gloo"},
                                       store);
  const NoSigpipe guard;  // inherited by Gloo's own thread
  try {
    return make_gloo_context(options.rank, std::move(links), options.start_timeout);
  } catch (const gloo::Exception& error) {
    throw IoError(fmt::format("gloo: cannot use the connections: {}", error.what()),
                  ExitCode::kPeer);
  }
}

// Gloo never times out by itself: a deadline there would kill the context and name nobody.
constexpr auto kForever = std::chrono::hours(24 * 365);
constexpr auto kInstant = std::chrono::milliseconds(1);
// After this others are told whom we wait for.
constexpr auto kLongWait = std::chrono::seconds(1);

// One exchange in progress, seen by the thread that waits and by the watch.
struct Flight {
  std::mutex mutex;  // guards the two below
  UnboundBuffer* waiting = nullptr;
  bool waiting_send = false;
  std::atomic<Clock::rep> last_progress{0};
  Milliseconds timeout{0};
  std::atomic<bool> aborted{false};
  std::atomic<bool> timed_out{false};
  std::atomic<bool> noted{false};    // others were told whom we wait for
  std::atomic<int> broken_peer{-1};  // at the other end of the first connection that broke
  std::vector<int> peers;            // that nothing came from yet; guarded by mutex

  bool has_waited(Clock::duration time) const {
    return Clock::duration(Clock::now().time_since_epoch().count() - last_progress.load()) > time;
  }
  void broken_by(int peer) {
    broken_peer = peer;
    aborted = true;
  }
  // Ends the wait that is in progress; called again until the flight is over.
  void abort() {
    aborted = true;
    const std::lock_guard lock(mutex);
    if (waiting == nullptr) return;
    waiting_send ? waiting->abortWaitSend() : waiting->abortWaitRecv();
  }
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(const GlooOptions& options, const std::shared_ptr<Store>& store)
      : options_(options), board_(store, options.rank), context_(make_context(options, *store)) {
    watch_ = std::make_unique<PeerWatch>(
        PeerWatch::Options{options.rank, options.size, options.host_id}, *store,
        Deadline::after(options.start_timeout), [this](int rank) { on_death(rank); },
        [this] { return on_tick(); });
  }

  // Says goodbye first: that our process ends later is then no surprise to anybody.
  ~GlooTransport() override {
    if (process_.is_here()) board_.say_goodbye();  // a forked child does not speak for its parent
  }

  std::string name() const override { return "gloo"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void open_flow(uint64_t flow, const std::vector<int>&) override {
    const std::lock_guard lock(mutex_);
    const auto peers = static_cast<size_t>(options_.size);
    counters_[flow] = {std::vector<uint64_t>(peers), std::vector<uint64_t>(peers)};
  }
  void close_flow(uint64_t flow) override {
    const std::lock_guard lock(mutex_);
    counters_.erase(flow);
  }
  void mark_dead(const Failure& failure) override { board_.report(failure); }
  std::optional<Failure> failure() const override { return board_.seen(); }

  void exchange(const Exchange& exchange) override {
    const NoSigpipe guard;
    exchange_in_batches(exchange, [&](std::span<const Message> batch) { run(batch, exchange); });
  }
  bool takes_early() const override { return false; }
  uint64_t chunk_bytes(size_t) const override { return 8U << 20; }
  void connect(const std::vector<int>&) override {}

 private:
  struct Counters {  // messages of one flow, by peer
    std::vector<uint64_t> sent;
    std::vector<uint64_t> received;
  };

  void run(std::span<const Message> messages, const Exchange& exchange) {
    if (board_.seen()) board_.raise(exchange.doing());
    Flight flight;
    flight.timeout = exchange.timeout;
    for (const Message& message : messages) {
      if (!message.is_send) flight.peers.push_back(message.peer);
    }
    flight.last_progress = Clock::now().time_since_epoch().count();
    const auto place = register_flight(flight);
    std::vector<std::unique_ptr<UnboundBuffer>> buffers;
    start(messages, exchange.flow, buffers, flight);
    const std::vector<size_t> open = finish(messages, buffers, flight);
    unregister_flight(place);
    if (!open.empty()) fail(messages, open, flight, exchange.timeout, exchange.doing());
    if (flight.noted) board_.note_waiting({});
  }

  // Slots are 64-bit names of messages: the flow, and a number that both ends count for the pair.
  void start(std::span<const Message> messages, uint64_t flow,
             std::vector<std::unique_ptr<UnboundBuffer>>& buffers, Flight& flight) {
    Counters& counters = counters_of(flow);
    for (const Message& message : messages) {
      const uint64_t number = (message.is_send ? counters.sent : counters.received)[message.peer]++;
      const uint64_t slot = flow * 0x9e3779b97f4a7c15ULL + number;
      buffers.push_back(context_->createUnboundBuffer(message.data, message.bytes));
      try {
        message.is_send ? buffers.back()->send(message.peer, slot)
                        : buffers.back()->recv(message.peer, slot);
      } catch (const gloo::Exception&) {  // the connection was already broken
        flight.broken_by(message.peer);
        return;
      }
    }
  }

  // A flow is used by one thread at a time; only finding it needs the lock.
  Counters& counters_of(uint64_t flow) {
    const std::lock_guard lock(mutex_);
    return counters_[flow];
  }

  // Waits for all; what did not complete is returned. After a deadline the rest is asked, to know
  // who is missing; Gloo then closes all connections. After anything else nothing more is touched:
  // others must not see our connections break before they can read why.
  std::vector<size_t> finish(std::span<const Message> messages,
                             std::vector<std::unique_ptr<UnboundBuffer>>& buffers, Flight& flight) {
    std::vector<size_t> open;
    for (size_t i = 0; i < messages.size(); ++i) {
      const bool asks = !flight.aborted || flight.timed_out;
      if (asks && i < buffers.size() && wait_one(messages[i], *buffers[i], flight)) {
        if (!messages[i].is_send) {
          const std::lock_guard lock(flight.mutex);
          std::erase(flight.peers, messages[i].peer);
        }
        flight.last_progress = Clock::now().time_since_epoch().count();
      } else {
        open.push_back(i);
        flight.aborted = true;
      }
    }
    return open;
  }

  static bool wait_one(const Message& message, UnboundBuffer& buffer, Flight& flight) {
    {
      const std::lock_guard lock(flight.mutex);
      flight.waiting = &buffer;
      flight.waiting_send = message.is_send;
    }
    bool done = false;
    try {
      const auto limit = flight.aborted ? kInstant : std::chrono::milliseconds(kForever);
      done = message.is_send ? buffer.waitSend(limit) : buffer.waitRecv(limit);
    } catch (const gloo::Exception&) {  // broken connection or asked in vain: not done
      if (!flight.aborted) flight.broken_by(message.peer);
    }
    const std::lock_guard lock(flight.mutex);
    flight.waiting = nullptr;
    return done;
  }

  [[noreturn]] void fail(std::span<const Message> messages, const std::vector<size_t>& open,
                         const Flight& flight, Milliseconds timeout, const std::string& doing) {
    std::vector<int> peers;
    for (const bool sends : {false, true}) {  // who sent us nothing; failing that, who took nothing
      for (size_t i : open) {
        if (messages[i].is_send == sends) peers.push_back(messages[i].peer);
      }
      if (!peers.empty()) break;
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    if (flight.timed_out) {
      board_.report({FailureKind::kTimeout, board_.find_culprits(peers), timeout});
    } else {
      board_.report_broken(flight.broken_peer >= 0 ? flight.broken_peer.load() : peers.front());
    }
    board_.raise(doing);
  }

  void on_death(int rank) {
    if (board_.has_left(rank)) return;
    const std::lock_guard lock(mutex_);
    dead_.push_back(rank);
    for (Flight* flight : flights_) {
      if (!flight->aborted) board_.report({FailureKind::kLost, {rank}});
      flight->abort();
    }
  }

  // Every 100 ms while there are exchanges; asleep after a tick without any.
  bool on_tick() {
    const std::lock_guard lock(mutex_);
    const bool busy = !flights_.empty() || std::exchange(had_flights_, false);
    asleep_ = !busy;
    if (flights_.empty()) return busy;
    const bool failed = board_.look(Milliseconds(0)).has_value();
    for (Flight* flight : flights_) {
      if (!failed && !flight->aborted && flight->has_waited(flight->timeout))
        flight->timed_out = true;
      const bool long_wait =
          flight->has_waited(std::min<Clock::duration>(flight->timeout / 2, kLongWait));
      if (long_wait && !flight->noted.exchange(true)) note_waiting(*flight);
      if (failed || flight->timed_out || flight->aborted) flight->abort();
    }
    return true;
  }

  void note_waiting(Flight& flight) {
    const std::lock_guard lock(flight.mutex);
    board_.note_waiting(flight.peers);
  }

  std::list<Flight*>::iterator register_flight(Flight& flight) {
    const std::lock_guard lock(mutex_);
    if (!dead_.empty()) {
      board_.report({FailureKind::kLost, {dead_.front()}});
      flight.aborted = true;
    }
    flights_.push_back(&flight);
    had_flights_ = true;
    if (std::exchange(asleep_, false)) watch_->wake();
    return std::prev(flights_.end());
  }

  void unregister_flight(std::list<Flight*>::iterator place) {
    const std::lock_guard lock(mutex_);
    flights_.erase(place);
  }

  OwnProcess process_;
  GlooOptions options_;
  FailureBoard board_;
  std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;  // guards all below but the watch
  bool asleep_ = true;
  bool had_flights_ = false;
  std::map<uint64_t, Counters> counters_;
  std::list<Flight*> flights_;
  std::vector<int> dead_;
  std::unique_ptr<PeerWatch> watch_;  // last: its thread uses all the others
};

}  // namespace

}  // namespace horon

extern "C" {

HORON_API const char* horon_part_version() { return horon::kBuildId; }

// Throws as GlooTransport does: a part is of the same build.
HORON_API horon::Transport* horon_gloo_transport(const horon::GlooOptions* options,
                                                 const std::shared_ptr<horon::Store>* store) {
  return new horon::GlooTransport(*options, *store);
}

}  // extern "C"
