// Sessions and questions; operations are in horon_operations.cc.
#include "horon/c/horon.h"

#include <algorithm>
#include <cstring>

#include "horon/base/part.h"
#include "horon/base/version.h"
#include "horon/c/convert.h"

namespace {

using namespace horon;     // NOLINT(google-build-using-namespace): the C functions stand in none,
using namespace horon::c;  // NOLINT(google-build-using-namespace): and all that they use is ours

using Job = horon_session;

// For the calling thread, until it asks again; null after an error.
template <typename Read>
const char* text_of(std::string& kept, const Read& read) {
  return code_of([&] { kept = read(); }) == 0 ? kept.c_str() : nullptr;
}

int copy_out(const std::vector<int>& all, int* to, int room) {
  const size_t most = std::min(all.size(), static_cast<size_t>(std::max(room, 0)));
  if (to != nullptr) std::copy_n(all.begin(), most, to);
  return static_cast<int>(all.size());
}

std::string need(const char* text, const char* what) {
  require(text != nullptr && *text != '\0', std::string(what) + " is missing");
  return text;
}

Store& store_of(const Job& job) {
  require(job.session->store() != nullptr, "one rank alone has no store");
  return *job.session->store();
}

}  // namespace

extern "C" {

int horon_open(const horon_session_options* options, horon_session** session) {
  return code_of([&] {
    require(session != nullptr, "horon_open: `session` is null");
    *session = open_session(options, false);
  });
}

int horon_close(horon_session* session) {
  return code_of([&] {
    require(session != nullptr, "horon_close: which session?");
    close_session(session);
  });
}

int horon_init(void) { return horon_init_with(nullptr); }
int horon_init_with(const horon_session_options* options) {
  return code_of([&] { open_session(options, true); });
}
int horon_shutdown(void) {
  return code_of([] { close_session(nullptr); });
}
int horon_is_initialized(void) { return has_default() ? 1 : 0; }

int horon_rank(horon_session* session) {
  return query(session, [](const Job& job) { return job.topology.rank; });
}
int horon_size(horon_session* session) {
  return query(session, [](const Job& job) { return job.topology.size; });
}
int horon_local_rank(horon_session* session) {
  return query(session, [](const Job& job) { return job.topology.local_rank; });
}
int horon_local_size(horon_session* session) {
  return query(session, [](const Job& job) { return job.topology.local_size; });
}
int horon_cross_rank(horon_session* session) {
  return query(session, [](const Job& job) { return job.topology.cross_rank; });
}
int horon_cross_size(horon_session* session) {
  return query(session, [](const Job& job) { return job.topology.cross_size; });
}
int horon_generation(horon_session* session) {
  return query(session, [](const Job& job) { return job.session->generation(); });
}

const char* horon_version(void) { return kVersion; }
const char* horon_last_error(void) { return last_error().text.data(); }
int horon_last_error_kind(void) { return last_error().kind; }
int horon_last_error_ranks(int* ranks, int room) {
  const LastError& error = last_error();
  return copy_out({error.ranks.begin(), error.ranks.begin() + error.count}, ranks, room);
}

const char* horon_setting(horon_session* session, const char* name) {
  thread_local std::string text;
  return text_of(text, [&] {
    const std::string given = need(name, "the name of the setting");
    const Setting* known = look_up_setting(given);  // by whatever name
    return Use(session)->session->job_settings().text(known == nullptr ? given : known->name);
  });
}
const char* horon_backend(horon_session* session) {
  thread_local std::string text;
  return text_of(text, [&] { return Use(session)->session->world().backend(); });
}
const char* horon_last_operations(horon_session* session) {
  thread_local std::string text;
  return text_of(text, [&] { return Use(session)->runtime().describe_last(); });
}

int horon_has_part(horon_session* session, const char* name) {
  return static_cast<int>(guarded([&]() -> int64_t {
    const Use job(session);
    const std::string part = need(name, "the name of the part");
    if (part.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != part.npos) return 0;
    try {
      Part::open(part, part_folders(job->session->job_settings().text("parts")));
      return 1;
    } catch (const UsageError&) {
      return 0;
    }
  }));
}

int horon_read_counters(horon_session* session, horon_counters* counters) {
  return code_of([&] {
    require(counters != nullptr, "horon_read_counters: `counters` is null");
    horon_counters own = read_struct(counters, "horon_counters");
    const RuntimeCounters now = Use(session)->runtime().counters();
    own.operations = now.operations;
    own.collectives = now.collectives;
    own.control_messages = now.control_messages;
    own.bytes = now.bytes;
    own.bytes_copied = now.bytes_copied;
    std::memcpy(counters, &own, std::min<size_t>(own.size, sizeof(own)));
  });
}

int horon_declare(horon_session* session, const horon_tensor* tensors, int count,
                  const horon_options* options, void** views) {
  return code_of([&] {
    require(count == 0 || (tensors != nullptr && views != nullptr), "the tensors are null");
    const Use job(session);
    const NamedOptions how = options_of(options);
    require(how.set == 0, "horon_declare: tensors of all ranks only, set 0");
    std::vector<TensorSpec> specs;
    const auto* at = reinterpret_cast<const char*>(tensors);
    for (int i = 0; i < count; ++i) {  // they are as large as the caller's header has them
      const auto* given = reinterpret_cast<const horon_tensor*>(at);
      const horon_tensor one = read_struct(given, "horon_tensor");
      at += given->size;
      require(one.name != nullptr && *one.name != '\0', "horon_declare: a tensor has no name");
      specs.push_back(job->runtime().declared_spec(
          one.name,
          {nullptr, one.count, dtype_of(one.dtype), device_of(one.device, one.device_index)}, how));
    }
    const BucketMemory memory =
        unless_closed(*job, [&] { return job->runtime().allocate_buckets(specs); });
    for (int i = 0; i < count; ++i) views[i] = memory.views[static_cast<size_t>(i)].data;
    const std::lock_guard lock(job->mutex);
    job->declared.insert(job->declared.end(), memory.buckets.begin(), memory.buckets.end());
  });
}

int horon_allocate(horon_session* session, uint64_t count, int dtype, void** data) {
  return code_of([&] {
    require(data != nullptr, "horon_allocate: `data` is null");
    const Use job(session);
    OwnedBuffer made = job->session->world().allocate(count, dtype_of(dtype));
    *data = made.view().data;
    const std::lock_guard lock(job->mutex);
    job->memory[*data] = std::move(made);
  });
}

int horon_free(horon_session* session, void* data) {
  return code_of([&] {
    const Use job(session);
    const std::lock_guard lock(job->mutex);
    require(job->memory.erase(data) == 1, "horon_free: this is not from horon_allocate");
  });
}

int horon_add_process_set(horon_session* session, const int* ranks, int count) {
  return static_cast<int>(guarded([&]() -> int64_t {
    require(ranks != nullptr && count > 0, "a process set needs ranks");
    const Use job(session);
    return unless_closed(*job, [&] {
      return job->runtime().add_process_set({ranks, ranks + count});
    });
  }));
}

int horon_remove_process_set(horon_session* session, int set) {
  return code_of([&] {
    const Use job(session);
    require(unless_closed(*job, [&] { return job->runtime().remove_process_set(set); }),
            "there is no process set " + std::to_string(set) + " to remove");
  });
}

int horon_process_sets(horon_session* session, int* sets, int room) {
  return static_cast<int>(guarded(
      [&]() -> int64_t { return copy_out(Use(session)->runtime().process_sets(), sets, room); }));
}

int horon_process_set_ranks(horon_session* session, int set, int* ranks, int room) {
  return static_cast<int>(guarded([&]() -> int64_t {
    return copy_out(Use(session)->runtime().process_set(set), ranks, room);
  }));
}

int horon_process_set_rank(horon_session* session, int set) {
  return static_cast<int>(guarded([&]() -> int64_t {
    const Use job(session);
    const std::vector<int> ranks = job->runtime().process_set(set);
    const auto found = std::find(ranks.begin(), ranks.end(), job->topology.rank);
    return found == ranks.end() ? -1 : found - ranks.begin();
  }));
}

int horon_join(horon_session* session, int set, int* last) {
  return code_of([&] {
    const Use job(session);
    const int rank = unless_closed(*job, [&] { return job->runtime().join(set); });
    if (last != nullptr) *last = rank;
  });
}

int horon_start_timeline(horon_session* session, const char* path) {
  return code_of([&] {
    const std::string file = need(path, "the path of the timeline");
    const Use job(session);
    unless_closed(*job, [&] { job->runtime().start_timeline(file); });
  });
}

int horon_stop_timeline(horon_session* session) {
  return code_of([&] { Use(session)->runtime().stop_timeline(); });
}

int horon_store_set(horon_session* session, const char* key, const void* data, uint64_t bytes) {
  return code_of([&] {
    require(data != nullptr || bytes == 0, "horon_store_set: the bytes are null");
    const Use job(session);
    store_of(*job).set("user/" + need(key, "the key"),
                       bytes == 0 ? "" : std::string(static_cast<const char*>(data), bytes),
                       Deadline::after(job->session->job_settings().duration("timeout")));
  });
}

int horon_store_get(horon_session* session, const char* key, void* data, uint64_t room,
                    uint64_t* bytes, int64_t milliseconds) {
  return code_of([&] {
    const Use job(session);
    const auto most = std::clamp<int64_t>(milliseconds, 0, kNoLimit.count());
    const std::string value =
        store_of(*job).get("user/" + need(key, "the key"), Deadline::after(Milliseconds(most)));
    if (bytes != nullptr) *bytes = value.size();
    if (data != nullptr) std::memcpy(data, value.data(), std::min<uint64_t>(room, value.size()));
  });
}

}  // extern "C"
