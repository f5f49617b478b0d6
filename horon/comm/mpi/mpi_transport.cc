// The MPI part, built once for each MPI. Opened by mpi_part.cc.
// The C interface alone: the old C++ one would need a library of its own.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "horon/base/api.h"
#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/base/version.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/comm/p2p/failure_board.h"

namespace horon {
namespace {

// MPI is the process's, not a transport's: begun once, and finalised at the exit of a process that
// ends well. Never destroyed: threads may look at it while the process ends.
class Library {
 public:
  static Library& get() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as said above
    static Library& library = *new Library();
    return library;
  }

  // Throws UsageError when it has no threads.
  void begin() {
    std::call_once(once_, [this] {
      int initialized = 0;
      MPI_Initialized(&initialized);
      int provided = MPI_THREAD_SINGLE;
      if (initialized == 0) {
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
        on_exit([](int status, void*) { get().end(status); }, nullptr);
      } else {
        MPI_Query_thread(&provided);
      }
      require(provided == MPI_THREAD_MULTIPLE,
              "this MPI was initialised without MPI_THREAD_MULTIPLE");
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    });
  }

  // A rank is lost: from now on nothing may wait for all ranks.
  void abandon() { abandoned_ = true; }
  bool is_abandoned() const { return abandoned_; }

  // While this is held MPI is not finalised. Throws Error if that has happened.
  std::shared_lock<std::shared_mutex> use() {
    std::shared_lock lock(mutex_);
    if (is_over()) throw Error("mpi: MPI was finalised");
    return lock;
  }
  static bool is_over() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized != 0;
  }

 private:
  // MPI_Finalize waits for all ranks: not from a job that failed, from within an operation that is
  // in flight, or from a forked child.
  void end(int status) {
    if (status != 0 || abandoned_ || !process_.is_here()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && !is_over()) MPI_Finalize();
  }

  OwnProcess process_;
  std::once_flag once_;
  std::atomic<bool> abandoned_{false};
  std::shared_mutex mutex_;
};

MpiIdentity world() {
  Library::get().begin();
  MpiIdentity found;
  MPI_Comm_rank(MPI_COMM_WORLD, &found.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &found.size);
  return found;
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(MpiIdentity identity, std::shared_ptr<Store> store)
      : identity_(identity), board_(std::move(store), identity.rank) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    int has_limit = 0;
    int* limit = nullptr;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &has_limit);
    if (has_limit != 0) tag_limit_ = static_cast<uint64_t>(*limit);
  }
  ~MpiTransport() override {
    if (!Library::get().is_abandoned() && !Library::is_over()) MPI_Comm_free(&comm_);
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return identity_.rank; }
  int size() const override { return identity_.size; }
  void mark_dead(const Failure& failure) override { board_.report(failure); }
  std::optional<Failure> failure() const override { return board_.seen(); }

  // Tags are short, so flows get hashed ones. A flow whose tag is in use by another open flow is
  // refused; the next sub-communicator of the same ranks has another id and another tag.
  void open_flow(uint64_t flow, const std::vector<int>&) override {
    const std::lock_guard lock(mutex_);
    if (!tags_.emplace(tag_of(flow), flow).second) {
      throw UsageError(
          "mpi: the tag of this communicator is in use by another one; create it again");
    }
  }
  void close_flow(uint64_t flow) override {
    const std::lock_guard lock(mutex_);
    tags_.erase(tag_of(flow));
  }

  void exchange(const Exchange& exchange) override {
    exchange_in_batches(exchange, [&](std::span<const Message> batch) { run(batch, exchange); });
  }
  bool takes_early() const override { return false; }
  uint64_t chunk_bytes(size_t) const override { return 8U << 20; }
  void connect(const std::vector<int>&) override {}

 private:
  void run(std::span<const Message> messages, const Exchange& exchange) {
    if (board_.seen()) board_.raise(exchange.doing());
    const auto mpi = Library::get().use();
    const int tag = tag_of(exchange.flow);
    std::vector<MPI_Request> requests(messages.size(), MPI_REQUEST_NULL);
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      const int bytes = static_cast<int>(message.bytes);
      const int status =
          message.is_send
              ? MPI_Isend(message.data, bytes, MPI_BYTE, message.peer, tag, comm_, &requests[i])
              : MPI_Irecv(message.data, bytes, MPI_BYTE, message.peer, tag, comm_, &requests[i]);
      if (status != MPI_SUCCESS) lose(message.peer, exchange);
    }
    wait_all(messages, requests, exchange);
  }

  int tag_of(uint64_t flow) const {
    return static_cast<int>((flow * 0x9e3779b97f4a7c15ULL >> 32) % tag_limit_);
  }

  // Polls: MPI has no other way to wait with a deadline. Backs off to 100 us.
  void wait_all(std::span<const Message> messages, std::vector<MPI_Request>& requests,
                const Exchange& exchange) {
    const Milliseconds timeout = exchange.timeout;
    Stopwatch since_progress;
    size_t open = requests.size();
    std::vector<int> done(requests.size());
    bool noted = false;
    for (uint64_t turn = 0; open > 0; ++turn) {
      int completed = 0;
      const int status = MPI_Testsome(static_cast<int>(requests.size()), requests.data(),
                                      &completed, done.data(), MPI_STATUSES_IGNORE);
      if (status != MPI_SUCCESS) lose(messages.front().peer, exchange);
      if (completed == MPI_UNDEFINED) return;
      if (completed > 0) {
        open -= static_cast<size_t>(completed);
        if (noted) board_.note_waiting({});
        noted = false;
        since_progress.restart();
        turn = 0;
        continue;
      }
      if (turn < 200) continue;
      if (!noted &&
          since_progress.seconds() > std::min(1.0, 5e-4 * static_cast<double>(timeout.count()))) {
        board_.note_waiting(open_peers(messages, requests));
        noted = true;
      }
      if (since_progress.seconds() * 1e3 > static_cast<double>(timeout.count())) {
        give_up(messages, requests, exchange);
      }
      if (turn < 1000) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(std::min<uint64_t>(turn / 100, 100)));
      }
      if (turn % 4096 == 0 && board_.look(Milliseconds(0))) give_up(messages, requests, exchange);
    }
  }

  // MPI itself reports an error: the connection is of no more use.
  [[noreturn]] void lose(int peer, const Exchange& exchange) {
    Library::get().abandon();
    board_.report({FailureKind::kLost, {peer}});
    board_.raise(exchange.doing());
  }

  static std::vector<int> open_peers(std::span<const Message> messages,
                                     const std::vector<MPI_Request>& requests) {
    std::vector<int> peers;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (requests[i] != MPI_REQUEST_NULL) peers.push_back(messages[i].peer);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

  [[noreturn]] void give_up(std::span<const Message> messages, std::vector<MPI_Request>& requests,
                            const Exchange& exchange) {
    Library::get().abandon();
    const std::vector<int> peers = open_peers(messages, requests);
    for (size_t i = 0; i < requests.size();
         ++i) {  // nothing may arrive in memory that is the caller's again
      if (messages[i].is_send || requests[i] == MPI_REQUEST_NULL) continue;
      int gone = 0;
      MPI_Cancel(&requests[i]);
      MPI_Test(&requests[i], &gone, MPI_STATUS_IGNORE);
    }
    board_.report({FailureKind::kTimeout, board_.find_culprits(peers), exchange.timeout});
    board_.raise(exchange.doing());
  }

  MpiIdentity identity_;
  FailureBoard board_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  uint64_t tag_limit_ = 32767;
  std::mutex mutex_;  // guards tags_
  std::map<int, uint64_t> tags_;
};

void raw_sum(float* data, uint64_t count) {
  MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

std::vector<std::string> exchange_texts(const std::string& mine) {
  const auto size = static_cast<size_t>(world().size);
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(size);
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> starts(size);
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), 0);
  std::string all(static_cast<size_t>(starts.back() + lengths.back()), '\0');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR,
                 MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (size_t i = 0; i < size; ++i)
    texts.push_back(all.substr(static_cast<size_t>(starts[i]), static_cast<size_t>(lengths[i])));
  return texts;
}

Transport* make_transport(const MpiOptions& options, std::shared_ptr<Store> store) {
  const MpiIdentity identity = world();
  const bool as_expected = (options.size < 0 || options.size == identity.size) &&
                           (options.rank < 0 || options.rank == identity.rank);
  require(as_expected,
          fmt::format(
              "MPI's world has {} ranks and this is its rank {}, the job expects rank {} of {}; "
              "start all ranks with one mpirun",
              identity.size, identity.rank, options.rank, options.size));
  return new MpiTransport(identity, std::move(store));
}

}  // namespace
}  // namespace horon

// Errors leave as null and a text.
template <typename Make>
static auto guarded(std::string* why, Make make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& error) {
    *why = error.what();
    return nullptr;
  }
}

extern "C" {

HORON_API const char* horon_part_version() { return horon::kBuildId; }

HORON_API horon::Transport* horon_mpi_transport(const horon::MpiOptions* options,
                                                std::shared_ptr<horon::Store>* store,
                                                std::string* why) {
  return guarded(why, [&] { return horon::make_transport(*options, *store); });
}

HORON_API horon::MpiIdentity* horon_mpi_world(std::string* why) {
  return guarded(why, [] { return new horon::MpiIdentity(horon::world()); });
}

HORON_API std::vector<std::string>* horon_mpi_exchange(const std::string* mine, std::string* why) {
  return guarded(why, [&] { return new std::vector<std::string>(horon::exchange_texts(*mine)); });
}

HORON_API void horon_mpi_abandon() { horon::Library::get().abandon(); }

// MPI_Allreduce itself: f32 sums in place, for benchmarks.
using RawSum = void(float* data, uint64_t count);
HORON_API RawSum* horon_mpi_raw_sum(std::string* why) {
  return guarded(why, []() -> RawSum* {
    horon::Library::get().begin();
    return &horon::raw_sum;
  });
}
}
