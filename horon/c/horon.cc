#include "horon/c/horon.h"

#include <semaphore.h>
#include <signal.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/base/version.h"
#include "horon/runtime/session.h"

namespace {

// The C functions below stand in no namespace, and all that they use is ours.
using namespace horon;  // NOLINT(google-build-using-namespace)

// One operation that the caller has a handle of.
struct Operation {
  Work work;
  std::unique_ptr<Gathered> gathered;  // of an all_gather
  int set = 0;
};

// An operation that is in flight when the job is closed has this long to end.
constexpr auto kFarewell = std::chrono::seconds(2);
// At exit: how long calls on other threads may take to come back after that.
constexpr auto kLastWait = std::chrono::seconds(1);

// The one job of this process.
struct Job {
  Topology topology;
  OwnProcess process;
  std::mutex mutex;  // guards all below but the runtime
  std::condition_variable changed;
  int users = 0;  // calls that are at work in here
  bool closes = false;
  std::map<horon_handle, std::shared_ptr<Operation>> operations;
  horon_handle next = 1;
  std::unique_ptr<Session> session;  // goes first: its operations write into those above
  Runtime* runtime = nullptr;        // the session's
};

// Neither is ever destroyed: threads may call while the process ends.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): the C interface has one job
std::mutex& job_mutex() {
  static std::mutex& mutex = *new std::mutex();
  return mutex;
}
std::shared_ptr<Job>& job_slot() {
  static auto& job = *new std::shared_ptr<Job>();
  return job;
}
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

// A call that is at work in the job, which is not closed before the call is over.
class Use {
 public:
  Use() {
    const std::lock_guard slot(job_mutex());
    job_ = job_slot();
    if (!job_) return;
    const std::lock_guard lock(job_->mutex);
    ++job_->users;
  }
  ~Use() {
    if (!job_) return;
    const std::lock_guard lock(job_->mutex);
    if (--job_->users == 0) job_->changed.notify_all();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  explicit operator bool() const { return job_ != nullptr; }
  Job& operator*() const {
    if (!job_) throw UsageError("call horon_init first");
    return *job_;
  }
  Job* operator->() const { return &**this; }

 private:
  std::shared_ptr<Job> job_;
};

// Out of reach of new calls, to be closed. Null in a forked child: it has the memory, but none of
// the job's threads.
std::shared_ptr<Job> take_job() {
  const std::lock_guard lock(job_mutex());
  if (job_slot() && !job_slot()->process.is_here()) return nullptr;
  return std::move(job_slot());
}

// Calls in the job come back, with an error if what they wait for does not end soon; then it is
// closed. False if calls are left when `last_wait` is over as well: nothing is closed then.
bool close(Job& job, Milliseconds last_wait) {
  const auto unused = [&] { return job.users == 0; };
  std::unique_lock lock(job.mutex);
  job.closes = true;
  if (!job.changed.wait_for(lock, kFarewell, unused)) {
    lock.unlock();
    job.runtime->world().give_up_on({job.topology.rank});  // the others learn of it, too
    lock.lock();
    if (!job.changed.wait_for(lock, last_wait, unused)) return false;
  }
  lock.unlock();
  job.session.reset();  // a call that has just come back may hold the rest for a moment
  return true;
}

// A job that nobody closed.
void close_at_exit() {
  try {
    const std::shared_ptr<Job> job = take_job();
    if (!job || close(*job, kLastWait)) return;
    new std::shared_ptr<Job>(job);   // somebody is still in there: the system frees it
  } catch (const std::exception&) {  // nobody is left who could be told
  }
}

// The text of the last error on this thread. Has no destructor: exit handlers may still call.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): C has no other place for it
thread_local std::array<char, 4096> last_error = {};

void keep_error(const char* text) {
  last_error[std::string_view(text).copy(last_error.data(), last_error.size() - 1)] = '\0';
}

// Nothing that is thrown leaves: it becomes a code and a text.
template <typename Body>
int64_t guarded(const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    keep_error(error.what());
    return -static_cast<int64_t>(error.exit_code());
  } catch (const std::exception& error) {
    keep_error(error.what());
    return -static_cast<int64_t>(ExitCode::kFailure);
  }
}

template <typename Body>
int code_of(const Body& body) {
  const int64_t result = guarded([&]() -> int64_t {
    body();
    return 0;
  });
  return static_cast<int>(-result);
}

DType dtype_of(int dtype) {
  require(dtype >= 0 && dtype < static_cast<int>(kDTypeCount),
          "there is no type " + std::to_string(dtype));
  return static_cast<DType>(dtype);
}

BufferView view(const void* data, uint64_t count, int dtype) {
  require(data != nullptr || count == 0, "the buffer is null");
  return {const_cast<void*>(data), count, dtype_of(dtype), {}};
}

NamedOptions options_of(const horon_options* given) {
  NamedOptions options;
  if (given == nullptr) return options;
  require(given->op >= HORON_SUM && given->op <= HORON_PRODUCT,
          "there is no reduce operation " + std::to_string(given->op));
  options.op = static_cast<ReduceOp>(given->op);
  options.reduction = given->exact != 0 ? Reduction::kExact : Reduction::kFast;
  options.prescale = given->prescale;
  options.postscale = given->postscale;
  options.priority = given->priority;
  options.set = given->set;
  if (given->codec != nullptr) options.codec = given->codec;
  return options;
}

std::string name_of_call(const char* name) { return name == nullptr ? "" : name; }

template <typename Submit>
horon_handle start(const Submit& submit) {
  return guarded([&]() -> int64_t {
    const Use job;
    auto operation = std::make_shared<Operation>();
    operation->work = submit(*job, *operation);
    const std::lock_guard lock(job->mutex);
    job->operations[job->next] = std::move(operation);
    return job->next++;
  });
}

std::shared_ptr<Operation> find(Job& job, horon_handle handle) {
  const std::lock_guard lock(job.mutex);
  const auto found = job.operations.find(handle);
  require(found != job.operations.end(), "there is no handle " + std::to_string(handle));
  return found->second;
}

void forget(Job& job, horon_handle handle) {
  const std::lock_guard lock(job.mutex);
  job.operations.erase(handle);
}

bool is_closing(Job& job) {
  const std::lock_guard lock(job.mutex);
  return job.closes;
}

// A wait that ended because we are shut down says so, and not that we do not answer.
template <typename Body>
auto unless_closed(Job& job, const Body& body) {
  try {
    return body();
  } catch (const TimeoutError&) {
    if (is_closing(job)) throw Error("horon_shutdown was called before this operation was over");
    throw;
  }
}

// A handler may only post; a thread that lives as long as the process writes.
sem_t& dump_asked() {
  static sem_t semaphore;
  return semaphore;
}

void dump_on_signal() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction now {};
    sigaction(SIGUSR1, nullptr, &now);
    if (now.sa_handler != SIG_DFL) return;  // somebody else's
    sem_init(&dump_asked(), 0, 0);
    std::thread([] {
      while (true) {
        while (sem_wait(&dump_asked()) != 0) {
        }
        const Use job;
        if (job) job->runtime->dump_last();
      }
    }).detach();
    struct sigaction action {};
    action.sa_handler = [](int) { sem_post(&dump_asked()); };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
  });
}

template <typename Read>
int query(const Read& read) {
  const std::lock_guard lock(job_mutex());
  return job_slot() ? read(*job_slot()) : -1;
}

std::vector<uint64_t> counts_of(const uint64_t* counts, size_t size) {
  return counts == nullptr ? std::vector<uint64_t>() : std::vector<uint64_t>(counts, counts + size);
}

uint64_t total(const std::vector<uint64_t>& counts) {
  uint64_t sum = 0;
  for (const uint64_t count : counts) sum += count;
  return sum;
}

}  // namespace

extern "C" {

void horon_options_init(horon_options* options) {
  *options = {HORON_SUM, 0, 1.0, 1.0, 0, 0, nullptr};
}

int horon_init(void) {
  return code_of([] {
    const std::lock_guard lock(job_mutex());
    require(!job_slot(), "horon_init was called before; call horon_shutdown first");
    auto job = std::make_shared<Job>();
    job->session = std::make_unique<Session>();
    job->runtime = &job->session->runtime();
    job->topology = job->session->topology();
    dump_on_signal();
    job_slot() = std::move(job);
    // Each time, so that it comes before the exit handlers of all that was started above.
    std::atexit(close_at_exit);
  });
}

int horon_shutdown(void) {
  return code_of([] {
    const std::shared_ptr<Job> job = take_job();
    require(job != nullptr, "there is nothing to shut down");
    while (!close(*job, kLastWait)) {
    }
  });
}

int horon_is_initialized(void) {
  const std::lock_guard lock(job_mutex());
  return job_slot() ? 1 : 0;
}

int horon_rank(void) {
  return query([](const Job& job) { return job.topology.rank; });
}
int horon_size(void) {
  return query([](const Job& job) { return job.topology.size; });
}
int horon_local_rank(void) {
  return query([](const Job& job) { return job.topology.local_rank; });
}
int horon_local_size(void) {
  return query([](const Job& job) { return job.topology.local_size; });
}
int horon_cross_rank(void) {
  return query([](const Job& job) { return job.topology.cross_rank; });
}
int horon_cross_size(void) {
  return query([](const Job& job) { return job.topology.cross_size; });
}
const char* horon_version(void) { return kVersion; }
const char* horon_last_error(void) { return last_error.data(); }

horon_handle horon_all_reduce(const char* name, void* data, uint64_t count, int dtype,
                              const horon_options* options) {
  return start([&](Job& job, Operation&) {
    return job.runtime->all_reduce(name_of_call(name), view(data, count, dtype),
                                   options_of(options));
  });
}

horon_handle horon_grouped_all_reduce(const char* name, void* const* data, const uint64_t* counts,
                                      const int* dtypes, int parts, const horon_options* options) {
  return start([&](Job& job, Operation&) {
    std::vector<BufferView> views;
    for (int i = 0; i < parts; ++i) views.push_back(view(data[i], counts[i], dtypes[i]));
    return job.runtime->all_reduce(name_of_call(name), views, options_of(options));
  });
}

horon_handle horon_broadcast(const char* name, void* data, uint64_t count, int dtype, int root,
                             const horon_options* options) {
  return start([&](Job& job, Operation&) {
    return job.runtime->broadcast(name_of_call(name), view(data, count, dtype), root,
                                  options_of(options));
  });
}

// NOLINTNEXTLINE(readability-function-size): C has no views of memory
horon_handle horon_reduce_scatter(const char* name, const void* in, uint64_t count, void* out,
                                  uint64_t out_count, int dtype, const uint64_t* counts,
                                  const horon_options* options) {
  return start([&](Job& job, Operation&) {
    const NamedOptions named = options_of(options);
    const size_t size = job.runtime->process_set(named.set).size();
    return job.runtime->reduce_scatter(name_of_call(name), view(in, count, dtype),
                                       view(out, out_count, dtype), counts_of(counts, size), named);
  });
}

horon_handle horon_all_gather(const char* name, const void* in, uint64_t count, int dtype,
                              const horon_options* options) {
  return start([&](Job& job, Operation& operation) {
    operation.gathered = std::make_unique<Gathered>();
    return job.runtime->all_gather(name_of_call(name), view(in, count, dtype), *operation.gathered,
                                   options_of(options));
  });
}

// NOLINTNEXTLINE(readability-function-size): C has no views of memory
horon_handle horon_all_to_all(const char* name, const void* in, const uint64_t* sends, void* out,
                              const uint64_t* receives, int dtype, const horon_options* options) {
  return start([&](Job& job, Operation&) {
    const NamedOptions named = options_of(options);
    const size_t size = job.runtime->process_set(named.set).size();
    require(sends != nullptr && receives != nullptr, "all_to_all: the counts are null");
    const auto sent = counts_of(sends, size);
    const auto received = counts_of(receives, size);
    return job.runtime->all_to_all(name_of_call(name), view(in, total(sent), dtype), sent,
                                   view(out, total(received), dtype), received, named);
  });
}

horon_handle horon_barrier(const char* name, const horon_options* options) {
  return start([&](Job& job, Operation&) {
    return job.runtime->barrier(name_of_call(name), options_of(options));
  });
}

int horon_poll(horon_handle handle) {
  return static_cast<int>(guarded([&]() -> int64_t {
    const Use job;
    return find(*job, handle)->work.done() ? 1 : 0;
  }));
}

int horon_wait(horon_handle handle) {
  return code_of([&] {
    const Use job;
    const auto operation = find(*job, handle);
    try {
      unless_closed(*job, [&] { operation->work.wait(); });
    } catch (...) {
      forget(*job, handle);
      throw;
    }
    if (!operation->gathered) forget(*job, handle);
  });
}

int horon_gathered(horon_handle handle, uint64_t* counts, void* out) {
  return code_of([&] {
    const Use job;
    const auto operation = find(*job, handle);
    require(operation->gathered != nullptr, "this handle is of no all_gather");
    require(operation->work.done(), "wait for the all_gather first");
    const Gathered& gathered = *operation->gathered;
    if (counts != nullptr) std::copy(gathered.counts.begin(), gathered.counts.end(), counts);
    if (out == nullptr) return;
    const BufferView all = gathered.data.view();
    std::copy_n(static_cast<const char*>(all.data), all.bytes(), static_cast<char*>(out));
    forget(*job, handle);
  });
}

int horon_start_timeline(const char* path) {
  return code_of([&] {
    require(path != nullptr && *path != '\0', "the timeline needs a path");
    const Use job;
    unless_closed(*job, [&] { job->runtime->start_timeline(path); });
  });
}

int horon_stop_timeline(void) {
  return code_of([] { Use()->runtime->stop_timeline(); });
}

const char* horon_last_operations(void) {
  thread_local std::string text;
  text.clear();
  code_of([] { text = Use()->runtime->describe_last(); });
  return text.c_str();
}

int horon_join(int set, int* last) {
  return code_of([&] {
    const Use job;
    const int rank = unless_closed(*job, [&] { return job->runtime->join(set); });
    if (last != nullptr) *last = rank;
  });
}

int horon_add_process_set(const int* ranks, int count) {
  return static_cast<int>(guarded([&]() -> int64_t {
    require(ranks != nullptr && count > 0, "a process set needs ranks");
    const Use job;
    return unless_closed(*job, [&] {
      return job->runtime->add_process_set({ranks, ranks + count});
    });
  }));
}

int horon_remove_process_set(int set) {
  return code_of([&] {
    const Use job;
    require(unless_closed(*job, [&] { return job->runtime->remove_process_set(set); }),
            "there is no process set " + std::to_string(set) + " to remove");
  });
}

}  // extern "C"
