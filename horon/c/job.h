#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/queue.h"
#include "horon/base/thread.h"
#include "horon/c/types.h"
#include "horon/runtime/session.h"

// The implementation behind horon.h: sessions, operations with handles, errors.

namespace horon::c {

// One operation that the caller has a handle for.
struct Operation {
  Work work;
  std::vector<std::unique_ptr<Gathered>> made;  // per item; null: the caller's memory
  std::vector<DType> dtypes;                    // of the results in `made`
  bool has_result() const;
};

// The last error on this thread. Has no destructor: exit handlers may still call.
struct LastError {
  std::array<char, 4096> text;
  int kind;
  int count;  // of ranks
  std::array<int, 64> ranks;
};
LastError& last_error();
// Stores the current exception for the calling thread; returns its code.
int keep_error();

// Runs `body`; an exception becomes minus its code.
template <typename Body>
int64_t guarded(const Body& body) {
  try {
    return body();
  } catch (...) {
    return -keep_error();
  }
}

// The same as a code.
template <typename Body>
int code_of(const Body& body) {
  return static_cast<int>(-guarded([&]() -> int64_t {
    body();
    return 0;
  }));
}

}  // namespace horon::c

// One session and the objects that callers have handles for.
struct horon_session {
  horon::Topology topology;
  horon::OwnProcess process;
  std::mutex mutex;  // guards all below but the session
  std::condition_variable changed;
  int users = 0;  // calls in progress
  bool closes = false;
  std::map<horon_handle, std::shared_ptr<horon::c::Operation>> operations;
  horon_handle next = 1;
  std::map<void*, horon::OwnedBuffer> memory;         // of horon_allocate
  std::vector<horon::OwnedBuffer> declared;           // all memory ever returned
  horon::Fd done_descriptor;                          // opened on request
  horon::BlockingQueue<std::function<void()>> calls;  // calls of users' callbacks
  std::thread caller;                                 // runs them; started with the first one
  std::deque<horon_handle> done;                      // not reported yet
  std::shared_ptr<horon::DeviceRuntime> devices;      // null: host memory only
  std::unique_ptr<horon::Session> session;            // destroyed first: it writes into those above

  horon::Runtime& runtime() const { return session->runtime(); }
};

namespace horon::c {

// A call in progress; the session is not closed before it ends. Null: the default session.
// UsageError if there is none, or not in this process.
class Use {
 public:
  explicit Use(horon_session* session);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  horon_session& operator*() const { return *job_; }
  horon_session* operator->() const { return job_.get(); }
  std::weak_ptr<horon_session> weak() const { return job_; }
  const std::shared_ptr<horon_session>& shared() const { return job_; }

 private:
  std::shared_ptr<horon_session> job_;
};

// Creates and registers a session; `is_default`: the one that null means.
horon_session* open_session(const horon_session_options* options, bool is_default);
// Unregisters the session, then closes it. UsageError if there is none.
void close_session(horon_session* session);
bool has_default();
// Reads one of the session's numbers, also in a forked child; -1 without a session.
int query(horon_session* session, int (*read)(const horon_session& job));
bool is_closing(horon_session& job);

// Reports a wait that ended because the session is being closed as such, not as a timeout of this
// rank.
template <typename Body>
auto unless_closed(horon_session& job, const Body& body) {
  try {
    return body();
  } catch (const TimeoutError&) {
    if (is_closing(job))
      throw Error("horon_shutdown or horon_close was called before this operation was over");
    throw;
  }
}

// Copies the caller's struct; fields that an older struct lacks are zero.
template <typename Struct>
Struct read_struct(const Struct* given, const char* what) {
  Struct own{};
  if (given == nullptr) return own;
  constexpr uint32_t kHead = 2 * sizeof(uint32_t);
  require(given->size >= kHead && given->size <= 4096 && given->version >= 1,
          std::string(what) + ": its size or version is not set");
  // NOLINTNEXTLINE(bugprone-undefined-memory-manipulation): plain C structs
  std::memcpy(&own, given, std::min<size_t>(given->size, sizeof(Struct)));
  return own;
}

}  // namespace horon::c
