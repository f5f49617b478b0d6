// Operations and their handles.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "horon/c/convert.h"
#include "horon/c/horon.h"
#include "horon/c/job.h"

namespace {

using namespace horon;     // NOLINT(google-build-using-namespace): the C functions stand in none,
using namespace horon::c;  // NOLINT(google-build-using-namespace): and all that they use is ours

using Job = horon_session;

// A buffer of the caller's, and what has to happen before and after it is used.
struct Given {
  BufferView view;
  std::vector<std::function<void()>> ready;
  std::vector<std::function<void()>> done;
};

Given read_buffer(const Job& job, const horon_buffer* given) {
  const horon_buffer buffer = read_struct(given, "horon_buffer");
  require(buffer.data != nullptr || buffer.count == 0, "the buffer is null");
  Given read;
  read.view = {buffer.data, buffer.count, dtype_of(buffer.dtype),
               device_of(buffer.device, buffer.device_index)};
  const bool has_events =
      buffer.stream != nullptr || buffer.ready != nullptr || buffer.done != nullptr;
  require((!has_events && read.view.device.is_cpu()) || job.devices != nullptr,
          "streams, events and memory of a GPU need a session that takes devices");
  const auto devices = job.devices;
  const int index = read.view.device.index;
  if (buffer.stream != nullptr)
    read.ready.push_back(
        [devices, mark = devices->mark(buffer.stream, index)] { devices->wait_event(mark.get()); });
  if (buffer.ready != nullptr)
    read.ready.push_back([devices, event = buffer.ready] { devices->wait_event(event); });
  if (buffer.done != nullptr)
    read.done.push_back(
        [devices, event = buffer.done, index] { devices->record_event(event, index); });
  return read;
}

// Those of an operation, one after the other.
class Buffers {
 public:
  explicit Buffers(const Job& job) : job_(job) {}
  BufferView read(const horon_buffer* given) {
    require(given != nullptr, "the buffer is null");
    Given one = read_buffer(job_, given);
    ready_.insert(ready_.end(), one.ready.begin(), one.ready.end());
    done_.insert(done_.end(), one.done.begin(), one.done.end());
    return one.view;
  }
  BufferView read(const horon_buffer* first, const horon_buffer* other) {
    require(first != nullptr || other != nullptr, "the buffer is null");
    return read(first != nullptr ? first : other);
  }
  void put_into(NamedOptions& options) const {
    options.ready = call_all(ready_);
    options.done = call_all(done_);
  }

 private:
  static std::function<void()> call_all(const std::vector<std::function<void()>>& all) {
    if (all.empty()) return nullptr;
    return [all] {
      for (const auto& one : all) one();
    };
  }
  const Job& job_;
  std::vector<std::function<void()>> ready_;
  std::vector<std::function<void()>> done_;
};

std::string name_of_call(const char* name) { return name == nullptr ? "" : name; }

std::vector<uint64_t> counts_of(const uint64_t* counts, size_t size) {
  return counts == nullptr ? std::vector<uint64_t>() : std::vector<uint64_t>(counts, counts + size);
}

// Where the operation makes its result.
Gathered& make_result(Operation& operation, DType dtype) {
  operation.made.push_back(std::make_unique<Gathered>());
  operation.dtypes.push_back(dtype);
  return *operation.made.back();
}
void no_result(Operation& operation) {
  operation.made.push_back(nullptr);
  operation.dtypes.push_back(DType::kU8);
}

// This rank's segment of `in`, in memory of its own.
BufferView make_segment(Runtime& runtime, int set, const BufferView& in,
                        std::vector<uint64_t>& counts, Operation& operation) {
  const std::vector<int> ranks = runtime.process_set(set);
  if (counts.empty()) counts = even_counts(in.count, static_cast<int>(ranks.size()));
  Gathered& made = make_result(operation, in.dtype);
  made.counts = counts;
  const auto mine = std::find(ranks.begin(), ranks.end(), runtime.rank()) - ranks.begin();
  require(mine < static_cast<ptrdiff_t>(ranks.size()), "this rank is not in the process set");
  made.data = OwnedBuffer::host(counts[static_cast<size_t>(mine)], in.dtype);
  return made.data.view();
}

Request item_of(Job& job, const horon_item* given, const NamedOptions& options, Buffers& buffers,
                Operation& operation) {
  const horon_item item = read_struct(given, "horon_item");
  const ReduceOptions reduce{options.op, options.reduction, {}, {}};
  const BufferView in = buffers.read(item.in, item.out);
  const bool is_made = item.out == nullptr;
  const auto out = [&] { return is_made || item.in == nullptr ? in : buffers.read(item.out); };
  switch (item.operation) {
    case HORON_ALL_REDUCE:
    case HORON_BROADCAST: {
      require(!is_made, "an item of a group has no output buffer");
      no_result(operation);
      Request request = item.operation == HORON_ALL_REDUCE ? Request::all_reduce(in, reduce)
                                                           : Request::broadcast(in, item.root);
      request.out = out();
      return request;
    }
    case HORON_REDUCE_SCATTER: {
      auto counts = counts_of(item.counts, job.runtime().process_set(options.set).size());
      if (is_made) {
        const BufferView segment = make_segment(job.runtime(), options.set, in, counts, operation);
        return Request::reduce_scatter(in, segment, counts, reduce);
      }
      no_result(operation);
      return Request::reduce_scatter(in, out(), counts, reduce);
    }
    case HORON_ALL_GATHER:
      if (is_made) return Request::all_gather(in, make_result(operation, in.dtype));
      no_result(operation);
      return Request::all_gather(in, out());
    default:
      throw UsageError("there is no operation " + std::to_string(item.operation) +
                       " for items of a group");
  }
}

void tell(horon_done done, void* user, const std::exception_ptr& error) {
  if (!error) return done(user, 0, "");
  const LastError before = last_error();  // of the thread that we are on
  int code = 0;
  try {
    std::rethrow_exception(error);
  } catch (...) {
    code = keep_error();
  }
  const LastError told = last_error();
  last_error() = before;
  done(user, code, told.text.data());
}

void start_caller(const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(job->mutex);
  if (job->caller.joinable()) return;
  job->caller = std::thread([job] {  // until the session is closed
    pthread_setname_np(pthread_self(), "hrn-done");
    while (const auto call = job->calls.pop()) (*call)();
  });
}

// Signals the descriptor, if there is one.
void announce(const std::weak_ptr<Job>& at, horon_handle handle) {
  const auto job = at.lock();
  if (!job) return;
  const std::lock_guard lock(job->mutex);
  job->done.push_back(handle);
  const uint64_t one = 1;
  (void)!write(job->done_descriptor.get(), &one, sizeof(one));
}

template <typename Submit>
horon_handle start(horon_session* session, const Submit& submit) {
  return guarded([&]() -> int64_t {
    const Use job(session);
    auto operation = std::make_shared<Operation>();
    operation->work = submit(*job, *operation);
    const Work work = operation->work;
    horon_handle handle = 0;
    bool announces = false;
    {
      const std::lock_guard lock(job->mutex);
      handle = job->next++;
      job->operations[handle] = std::move(operation);
      announces = job->done_descriptor.get() >= 0;
    }
    if (announces) work.on_done([at = job.weak(), handle](auto) { announce(at, handle); });
    return handle;
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

// True if it is over; then it is forgotten, unless a result is to be fetched.
bool wait_until(Job& job, horon_handle handle, Deadline deadline) {
  const auto operation = find(job, handle);
  try {
    if (!unless_closed(job, [&] { return operation->work.wait(deadline); })) return false;
  } catch (...) {
    forget(job, handle);
    throw;
  }
  if (!operation->has_result()) forget(job, handle);
  return true;
}

}  // namespace

extern "C" {

horon_handle horon_all_reduce(horon_session* session, const char* name, const horon_buffer* in,
                              const horon_buffer* out, const horon_options* options) {
  return start(session, [&](Job& job, Operation&) {
    NamedOptions how = options_of(options);
    Buffers buffers(job);
    const BufferView result = buffers.read(out);
    const BufferView given = in == nullptr ? result : buffers.read(in);
    buffers.put_into(how);
    return job.runtime().all_reduce(name_of_call(name), given, result, how);
  });
}

horon_handle horon_broadcast(horon_session* session, const char* name, const horon_buffer* in,
                             const horon_buffer* out, int root, const horon_options* options) {
  return start(session, [&](Job& job, Operation&) {
    NamedOptions how = options_of(options);
    Buffers buffers(job);
    const BufferView result = buffers.read(out);
    const auto ranks = job.runtime().process_set(how.set);
    const bool is_root = root >= 0 && root < static_cast<int>(ranks.size()) &&
                         ranks[static_cast<size_t>(root)] == job.topology.rank;
    const BufferView given = in == nullptr || !is_root ? result : buffers.read(in);
    buffers.put_into(how);
    return job.runtime().broadcast(name_of_call(name), given, result, root, how);
  });
}

horon_handle horon_reduce_scatter(horon_session* session, const char* name, const horon_buffer* in,
                                  const horon_buffer* out, const uint64_t* counts,
                                  const horon_options* options) {
  return start(session, [&](Job& job, Operation& operation) {
    NamedOptions how = options_of(options);
    Buffers buffers(job);
    const BufferView given = buffers.read(in);
    auto cut = counts_of(counts, job.runtime().process_set(how.set).size());
    const BufferView result = out != nullptr
                                  ? buffers.read(out)
                                  : make_segment(job.runtime(), how.set, given, cut, operation);
    buffers.put_into(how);
    return job.runtime().reduce_scatter(name_of_call(name), given, result, cut, how);
  });
}

horon_handle horon_all_gather(horon_session* session, const char* name, const horon_buffer* in,
                              const horon_buffer* out, const horon_options* options) {
  return start(session, [&](Job& job, Operation& operation) {
    NamedOptions how = options_of(options);
    Buffers buffers(job);
    const BufferView given = buffers.read(in);
    if (out == nullptr) {
      buffers.put_into(how);
      return job.runtime().all_gather(name_of_call(name), given,
                                      make_result(operation, given.dtype), how);
    }
    const BufferView result = buffers.read(out);
    buffers.put_into(how);
    return job.runtime().all_gather(name_of_call(name), given, result, how);
  });
}

// NOLINTNEXTLINE(readability-function-size): C has no views of memory
horon_handle horon_all_to_all(horon_session* session, const char* name, const horon_buffer* in,
                              const uint64_t* sends, const horon_buffer* out,
                              const uint64_t* receives, const horon_options* options) {
  return start(session, [&](Job& job, Operation& operation) {
    NamedOptions how = options_of(options);
    const size_t size = job.runtime().process_set(how.set).size();
    require(sends != nullptr, "all_to_all: the counts are null");
    require((out == nullptr) == (receives == nullptr),
            "all_to_all: give both out and receives, or neither");
    Buffers buffers(job);
    const BufferView given = buffers.read(in);
    const auto sent = counts_of(sends, size);
    if (out == nullptr) {
      buffers.put_into(how);
      return job.runtime().all_to_all(name_of_call(name), given, sent,
                                      make_result(operation, given.dtype), how);
    }
    const BufferView result = buffers.read(out);
    buffers.put_into(how);
    return job.runtime().all_to_all(name_of_call(name), given, sent, result,
                                    counts_of(receives, size), how);
  });
}

horon_handle horon_barrier(horon_session* session, const char* name, const horon_options* options) {
  return start(session, [&](Job& job, Operation&) {
    return job.runtime().barrier(name_of_call(name), options_of(options));
  });
}

horon_handle horon_group(horon_session* session, const char* name, const horon_item* items,
                         int count, const horon_options* options) {
  return start(session, [&](Job& job, Operation& operation) {
    NamedOptions how = options_of(options);
    require(count == 0 || items != nullptr, "the items are null");
    Buffers buffers(job);
    std::vector<Request> requests;
    const auto* at = reinterpret_cast<const char*>(items);
    for (int i = 0; i < count; ++i) {  // they are as large as the caller's header has them
      const auto* item = reinterpret_cast<const horon_item*>(at);
      requests.push_back(item_of(job, item, how, buffers, operation));
      at += item->size;
    }
    buffers.put_into(how);
    return job.runtime().group(name_of_call(name), std::move(requests), how);
  });
}

int horon_poll(horon_session* session, horon_handle handle) {
  return static_cast<int>(guarded([&]() -> int64_t {
    const Use job(session);
    const Work work = find(*job, handle)->work;
    work.expect();
    return work.done() ? 1 : 0;
  }));
}

int horon_wait(horon_session* session, horon_handle handle) {
  return code_of([&] {
    const Use job(session);
    while (!wait_until(*job, handle, Deadline::never())) {
    }
  });
}

int horon_wait_for(horon_session* session, horon_handle handle, int64_t milliseconds) {
  bool over = true;
  const int code = code_of([&] {
    const Use job(session);
    const auto most = std::clamp<int64_t>(milliseconds, 0, kNoLimit.count());
    over = wait_until(*job, handle, Deadline::after(Milliseconds(most)));
  });
  return over ? code : -1;
}

int horon_wait_all(horon_session* session, const horon_handle* handles, int count) {
  LastError first = {};
  int code = count > 0 && handles == nullptr
                 ? code_of([] { throw UsageError("the handles are null"); })
                 : 0;
  if (code != 0) return code;
  for (int i = 0; i < count; ++i) {
    const int one = horon_wait(session, handles[i]);
    if (code != 0 || one == 0) continue;
    code = one;
    first = last_error();
  }
  if (code != 0) last_error() = first;
  return code;
}

int horon_release(horon_session* session, horon_handle handle) {
  return code_of([&] {
    const Use job(session);
    const auto operation = find(*job, handle);
    // What it writes into lives until it is over.
    operation->work.on_done([operation](auto) {});
    forget(*job, handle);
  });
}

int horon_result(horon_session* session, horon_handle handle, int item, horon_made* made) {
  return code_of([&] {
    require(made != nullptr, "horon_result: the result pointer is null");
    read_struct(made, "horon_made");
    const Use job(session);
    const auto operation = find(*job, handle);
    const auto at = static_cast<size_t>(item);
    require(item >= 0 && at < operation->made.size() && operation->made[at] != nullptr,
            "this operation did not allocate a result");
    require(operation->work.done(), "wait for the operation first");
    if (const auto error = operation->work.error()) std::rethrow_exception(error);
    const Gathered& gathered = *operation->made[at];
    horon_made own = {};
    own.size = made->size;
    own.version = made->version;
    own.data = gathered.data.view().data;
    own.count = gathered.data.view().count;
    own.dtype = static_cast<int32_t>(operation->dtypes[at]);
    own.ranks = static_cast<int32_t>(gathered.counts.size());
    own.counts = gathered.counts.data();
    std::memcpy(made, &own, std::min<size_t>(made->size, sizeof(own)));
  });
}

int horon_on_done(horon_session* session, horon_handle handle, horon_done done, void* user) {
  return code_of([&] {
    require(done != nullptr, "horon_on_done: the function is null");
    Work work;
    {
      const Use job(session);
      work = find(*job, handle)->work;
      if (!work.done()) {
        start_caller(job.shared());
        work.on_done([at = job.weak(), done, user](const std::exception_ptr& error) {
          if (const auto open = at.lock())  // other threads wait for the one that we are on
            open->calls.push([done, user, error] { tell(done, user, error); });
        });
        return;
      }
    }
    tell(done, user, work.error());
  });
}

int horon_descriptor(horon_session* session) {
  return static_cast<int>(guarded([&]() -> int64_t {
    const Use job(session);
    const std::lock_guard lock(job->mutex);
    if (job->done_descriptor.get() < 0)
      job->done_descriptor = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (job->done_descriptor.get() < 0) throw io_error("eventfd");
    return job->done_descriptor.get();
  }));
}

horon_handle horon_next_done(horon_session* session) {
  return guarded([&]() -> int64_t {
    const Use job(session);
    const std::lock_guard lock(job->mutex);
    horon_handle handle = 0;
    while (!job->done.empty() && handle == 0) {
      const bool waits = job->operations.contains(job->done.front());  // else it was waited for
      if (waits) handle = job->done.front();
      job->done.pop_front();
    }
    uint64_t ignored = 0;
    if (job->done.empty()) (void)!read(job->done_descriptor.get(), &ignored, sizeof(ignored));
    return handle;
  });
}

}  // extern "C"
