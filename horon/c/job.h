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

// What stands behind horon.h: sessions, the operations that callers have handles of, errors.

namespace horon::c {

// One operation that the caller has a handle of.
struct Operation {
  Work work;
  std::vector<std::unique_ptr<Gathered>> made;  // of each item; null: the caller's memory
  std::vector<DType> dtypes;                    // of what was made
  bool has_result() const;
};

// The text of the last error on this thread, and more of it. Has no destructor: exit handlers may
// still call.
struct LastError {
  std::array<char, 4096> text;
  int kind;
  int count;  // of ranks
  std::array<int, 64> ranks;
};
LastError& last_error();
// Keeps the exception that is being handled for the calling thread; its code.
int keep_error();

// Nothing that is thrown leaves: it becomes minus a code.
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

// One session, and what callers have of it.
struct horon_session {
  horon::Topology topology;
  horon::OwnProcess process;
  std::mutex mutex;  // guards all below but the session
  std::condition_variable changed;
  int users = 0;  // calls that are at work in here
  bool closes = false;
  std::map<horon_handle, std::shared_ptr<horon::c::Operation>> operations;
  horon_handle next = 1;
  std::map<void*, horon::OwnedBuffer> memory;         // of horon_allocate
  std::vector<horon::OwnedBuffer> declared;           // all that was ever handed out
  horon::Fd done_descriptor;                          // closed until it is asked for
  horon::BlockingQueue<std::function<void()>> calls;  // of callers' own functions
  std::thread caller;                                 // of those; not started until there is one
  std::deque<horon_handle> done;                      // not named yet
  std::shared_ptr<horon::DeviceRuntime> devices;      // null: host memory only
  std::unique_ptr<horon::Session> session;  // goes first: its operations write into those above

  horon::Runtime& runtime() const { return session->runtime(); }
};

namespace horon::c {

// A call that is at work in a session, which is not closed before the call is over. Null: the
// default one. UsageError where there is none, or not for this process.
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

// Made and listed; `is_default`: the one that null stands for.
horon_session* open_session(const horon_session_options* options, bool is_default);
// Out of reach, then closed. UsageError if there is none.
void close_session(horon_session* session);
bool has_default();
// Reads a number of the session's place, also in a forked child; -1 without a session.
int query(horon_session* session, int (*read)(const horon_session& job));
bool is_closing(horon_session& job);

// A wait that ended because the session is being closed says so, and not that this rank does not
// answer.
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

// The caller's struct as this library knows it: what an older one does not have is zero.
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
