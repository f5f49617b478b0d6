#include "horon/comm/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "horon/base/error.h"
#include "horon/comm/p2p/failure_board.h"
#include "horon/comm/p2p/peer_watch.h"

namespace horon {
namespace {

using gloo::transport::UnboundBuffer;

// Our store with Gloo's interface.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(horon::Store& store, Deadline deadline) : store_(store), deadline_(deadline) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set("gloo/" + key, std::string(data.begin(), data.end()), deadline_);
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get("gloo/" + key, deadline_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  horon::Store& store_;
  Deadline deadline_;
};

bool is_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next)
    found = found || name == at->ifa_name;
  freeifaddrs(list);
  return found;
}

std::shared_ptr<gloo::rendezvous::Context> connect(const GlooOptions& options, Store& store) {
  gloo::transport::tcp::attr attributes;
  if (options.interface.empty()) {
    std::string host(256, '\0');
    gethostname(host.data(), host.size() - 1);
    attributes.hostname = options.one_host ? "127.0.0.1" : host.c_str();
  } else if (is_interface(options.interface)) {
    attributes.iface = options.interface;
  } else {
    attributes.hostname = options.interface;
  }
  try {
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.start_timeout);
    GlooStore adapter(store, Deadline::after(options.start_timeout));
    context->connectFullMesh(adapter, device);
    return context;
  } catch (const gloo::Exception& error) {
    throw IoError(fmt::format("gloo: cannot connect the ranks (interface '{}'): {}",
                              options.interface, error.what()),
                  ExitCode::kPeer);
  }
}

// Gloo never times out by itself: a deadline there would kill the context and name nobody.
constexpr auto kForever = std::chrono::hours(24 * 365);
constexpr auto kInstant = std::chrono::milliseconds(1);

// One exchange in progress, seen by the thread that waits and by the watch.
struct Flight {
  std::mutex mutex;  // guards the two below
  UnboundBuffer* waiting = nullptr;
  bool waiting_send = false;
  std::atomic<Clock::rep> last_progress{0};
  Milliseconds timeout{0};
  std::atomic<bool> aborted{false};
  std::atomic<bool> timed_out{false};

  bool is_late() const {
    const auto since =
        Clock::duration(Clock::now().time_since_epoch().count() - last_progress.load());
    return since > timeout;
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
  GlooTransport(const GlooOptions& options, std::shared_ptr<Store> store)
      : options_(options),
        store_(store),
        board_(store, options.rank),
        context_(connect(options, *store)) {
    watch_ = std::make_unique<PeerWatch>(
        PeerWatch::Options{options.rank, options.size, options.host_id}, *store,
        Deadline::after(options.start_timeout), [this](int rank) { on_death(rank); },
        [this] { return on_tick(); });
  }

  // Says goodbye first: that our process ends later is then no surprise to anybody.
  ~GlooTransport() override {
    try {
      store_->set(goodbye(options_.rank), "1", Deadline::after(std::chrono::seconds(1)));
    } catch (const std::exception&) {  // the store is gone; so are the others
    }
  }

  std::string name() const override { return "gloo"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void open_stream(uint64_t stream) override {
    const std::lock_guard lock(mutex_);
    exchanges_[stream] = 0;
  }
  void close_stream(uint64_t stream) override {
    const std::lock_guard lock(mutex_);
    exchanges_.erase(stream);
  }
  void mark_dead(const Failure& failure) override { board_.report(failure); }
  std::string dead_reason() const override { return board_.dead_reason(); }

  void exchange(std::span<const Message> messages, uint64_t stream, Milliseconds timeout,
                const std::string& doing) override {
    if (board_.seen()) board_.raise(doing, timeout);
    Flight flight;
    flight.timeout = timeout;
    flight.last_progress = Clock::now().time_since_epoch().count();
    const auto place = register_flight(flight);
    std::vector<std::unique_ptr<UnboundBuffer>> buffers;
    std::vector<size_t> open;
    try {
      start(messages, stream, buffers);
      open = finish(messages, buffers, flight);
    } catch (const gloo::Exception&) {  // a connection was already broken when we wanted to send
      for (size_t i = 0; i < messages.size(); ++i) open.push_back(i);
    }
    unregister_flight(place);
    if (!open.empty()) fail(messages, open, flight, timeout, doing);
  }

 private:
  // Slots are 64-bit names of messages: stream, number of the exchange, number within it.
  void start(std::span<const Message> messages, uint64_t stream,
             std::vector<std::unique_ptr<UnboundBuffer>>& buffers) {
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = ++exchanges_[stream];
    }
    std::map<std::pair<int, bool>, uint64_t> per_peer;
    for (const Message& message : messages) {
      const uint64_t index = per_peer[{message.peer, message.is_send}]++;
      const uint64_t slot =
          (stream * 0x9e3779b97f4a7c15ULL + number) * 0xbf58476d1ce4e5b9ULL + index;
      buffers.push_back(context_->createUnboundBuffer(message.data, message.bytes));
      if (message.is_send) {
        buffers.back()->send(message.peer, slot);
      } else {
        buffers.back()->recv(message.peer, slot);
      }
    }
  }

  // Waits for all; what did not complete is returned.
  std::vector<size_t> finish(std::span<const Message> messages,
                             std::vector<std::unique_ptr<UnboundBuffer>>& buffers, Flight& flight) {
    std::vector<size_t> open;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (wait_one(messages[i], *buffers[i], flight)) {
        flight.last_progress = Clock::now().time_since_epoch().count();
      } else {
        open.push_back(i);
        flight.aborted = true;  // the others are only asked, not waited for
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
      board_.report({FailureKind::kTimeout, peers});
    } else if (!board_.look(Milliseconds(300))) {
      // Nobody says who it was: the first whose connection broke.
      board_.report({FailureKind::kLost, {messages[open.front()].peer}});
    }
    board_.raise(doing, timeout);
  }

  static std::string goodbye(int rank) { return fmt::format("left/{}", rank); }
  bool has_left(int rank) {
    try {
      store_->get(goodbye(rank), Deadline::after(Milliseconds(0)));
      return true;
    } catch (const std::exception&) {  // no such key, or no store left to ask
      return false;
    }
  }

  void on_death(int rank) {
    if (has_left(rank)) return;
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
      if (!failed && !flight->aborted && flight->is_late()) flight->timed_out = true;
      if (failed || flight->timed_out || flight->aborted) flight->abort();
    }
    return true;
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

  GlooOptions options_;
  std::shared_ptr<Store> store_;
  FailureBoard board_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::mutex mutex_;  // guards all below but the watch
  bool asleep_ = true;
  bool had_flights_ = false;
  std::map<uint64_t, uint64_t> exchanges_;
  std::list<Flight*> flights_;
  std::vector<int> dead_;
  std::unique_ptr<PeerWatch> watch_;  // last: its thread uses all the others
};

class RawGloo final : public RawPeer {
 public:
  RawGloo(const GlooOptions& options, Store& store) : context_(connect(options, store)) {}
  void all_reduce(float* data, uint64_t count) override {
    gloo::AllreduceOptions call(context_);
    call.setOutput(data, count);
    call.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(call);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               std::shared_ptr<Store> store) {
  return std::make_shared<GlooTransport>(options, std::move(store));
}

std::unique_ptr<RawPeer> make_raw_gloo(const GlooOptions& options, std::shared_ptr<Store> store) {
  return std::make_unique<RawGloo>(options, *store);
}

}  // namespace horon
