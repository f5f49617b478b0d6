#include "horon/c/horon.h"

#include <semaphore.h>
#include <signal.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/version.h"
#include "horon/comm/join.h"
#include "horon/runtime/runtime.h"

namespace {

using namespace horon;

// One operation that the caller has a handle of.
struct Operation {
  Work work;
  std::unique_ptr<Gathered> gathered;  // of an all_gather
  int set = 0;
};

// The one job of this process.
struct Job {
  World world;
  Topology topology;
  std::unique_ptr<Runtime> runtime;
  std::mutex mutex;  // guards the two below
  std::map<horon_handle, std::shared_ptr<Operation>> operations;
  horon_handle next = 1;
};

std::mutex& job_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::shared_ptr<Job>& job_slot() {
  static std::shared_ptr<Job> job;
  return job;
}
std::string& last_error() {
  thread_local std::string text;
  return text;
}

std::shared_ptr<Job> current_job() {
  const std::lock_guard lock(job_mutex());
  if (!job_slot()) throw UsageError("call horon_init first");
  return job_slot();
}

// Nothing that is thrown leaves: it becomes a code and a text.
template <typename Body>
int64_t guarded(const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    last_error() = error.what();
    return -static_cast<int64_t>(error.exit_code());
  } catch (const std::exception& error) {
    last_error() = error.what();
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
    const auto job = current_job();
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
        std::shared_ptr<Job> job;
        {
          const std::lock_guard lock(job_mutex());
          job = job_slot();
        }
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
    const Knobs knobs = Knobs::resolve({}, process_env, process_env("HORON_CONFIG").value_or(""));
    job->world = join_world(knobs);
    auto comm = make_communicator(job->world, knobs);
    job->topology = comm->topology();
    RuntimeOptions options = runtime_options(knobs);
    options.store = job->world.store;
    job->runtime = std::make_unique<Runtime>(std::move(comm), options);
    if (!knobs.text("timeline").empty()) job->runtime->start_timeline(knobs.text("timeline"));
    dump_on_signal();
    job_slot() = std::move(job);
  });
}

int horon_shutdown(void) {
  return code_of([] {
    std::shared_ptr<Job> job;
    {
      const std::lock_guard lock(job_mutex());
      job.swap(job_slot());
    }
    require(job != nullptr, "there is nothing to shut down");
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
const char* horon_last_error(void) { return last_error().c_str(); }

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
    const auto job = current_job();
    return find(*job, handle)->work.done() ? 1 : 0;
  }));
}

int horon_wait(horon_handle handle) {
  return code_of([&] {
    const auto job = current_job();
    const auto operation = find(*job, handle);
    try {
      operation->work.wait();
    } catch (...) {
      forget(*job, handle);
      throw;
    }
    if (!operation->gathered) forget(*job, handle);
  });
}

int horon_gathered(horon_handle handle, uint64_t* counts, void* out) {
  return code_of([&] {
    const auto job = current_job();
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
    current_job()->runtime->start_timeline(path);
  });
}

int horon_stop_timeline(void) {
  return code_of([] { current_job()->runtime->stop_timeline(); });
}

const char* horon_last_operations(void) {
  thread_local std::string text;
  text.clear();
  code_of([] { text = current_job()->runtime->describe_last(); });
  return text.c_str();
}

int horon_join(int set, int* last) {
  return code_of([&] {
    const int rank = current_job()->runtime->join(set);
    if (last != nullptr) *last = rank;
  });
}

int horon_add_process_set(const int* ranks, int count) {
  return static_cast<int>(guarded([&]() -> int64_t {
    require(ranks != nullptr && count > 0, "a process set needs ranks");
    return current_job()->runtime->add_process_set({ranks, ranks + count});
  }));
}

int horon_remove_process_set(int set) {
  return code_of([&] {
    require(current_job()->runtime->remove_process_set(set),
            "there is no process set " + std::to_string(set) + " to remove");
  });
}

}  // extern "C"
