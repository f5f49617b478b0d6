// Sessions: opened, used, closed, left behind.
#include "horon/c/job.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "horon/base/part.h"
#include "horon/device/stream.h"

namespace horon::c {
namespace {

using Job = horon_session;

// An operation that is in flight when a session is closed has this long to end.
constexpr auto kFarewell = std::chrono::seconds(2);
// At exit: how long calls on other threads may take to return.
constexpr auto kLastWait = std::chrono::seconds(1);

// All sessions of the process. Never destroyed: threads may call while the process ends.
struct Sessions {
  std::mutex mutex;
  std::map<Job*, std::shared_ptr<Job>> open;
  Job* by_default = nullptr;
  bool opens_default = false;
};
Sessions& sessions() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): C callers share them
  static Sessions& all = *new Sessions();
  return all;
}

std::shared_ptr<Job> find(Job* session) {
  Sessions& all = sessions();
  const auto found = all.open.find(session == nullptr ? all.by_default : session);
  return found == all.open.end() ? nullptr : found->second;
}

// Out of reach of new calls. Null in a forked child: it has the memory, but none of the threads.
std::shared_ptr<Job> take(Job* session) {
  Sessions& all = sessions();
  const std::lock_guard lock(all.mutex);
  auto job = find(session);
  if (!job || !job->process.is_here()) return nullptr;
  if (all.by_default == job.get()) all.by_default = nullptr;
  all.open.erase(job.get());
  return job;
}

// Calls in the session come back, with an error if what they wait for does not end soon; then it is
// closed. False if calls are left when `last_wait` is over as well: nothing is closed then.
bool close(Job& job, Milliseconds last_wait) {
  const auto unused = [&] { return job.users == 0; };
  std::unique_lock lock(job.mutex);
  job.closes = true;
  if (!job.changed.wait_for(lock, kFarewell, unused)) {
    lock.unlock();
    job.session->world().give_up_on({job.topology.rank});  // other ranks get an error, too
    lock.lock();
    if (!job.changed.wait_for(lock, last_wait, unused)) return false;
  }
  lock.unlock();
  job.session.reset();  // a call that has just returned may hold the rest for a moment
  job.calls.close();
  if (job.caller.get_id() == std::this_thread::get_id()) {
    job.caller.detach();
  } else if (job.caller.joinable()) {
    job.caller.join();
  }
  return true;
}

// Sessions that were not closed.
void close_at_exit() {
  try {
    while (true) {
      std::shared_ptr<Job> job;
      {
        const std::lock_guard lock(sessions().mutex);
        for (const auto& [key, one] : sessions().open)
          if (one->process.is_here()) job = one;
      }
      if (!job) return;
      take(job.get());
      if (!close(*job, kLastWait))
        new std::shared_ptr<Job>(job);  // somebody is still in there: the system frees it
    }
  } catch (const std::exception&) {  // no caller is left to report to
  }
}

void ask_for_dump(int signal);

bool handles_dumps() {
  struct sigaction now {};
  sigaction(SIGUSR1, nullptr, &now);
  return now.sa_handler == ask_for_dump;
}

// A child must not find the list locked by a thread that it does not have, and has no thread that
// would write what a signal asks for.
void mind_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork([] { sessions().mutex.lock(); }, [] { sessions().mutex.unlock(); },
                   [] {
                     sessions().mutex.unlock();
                     if (handles_dumps()) signal(SIGUSR1, SIG_DFL);
                   });
  });
}

// A handler may only post; a thread that lives as long as the process writes.
sem_t& dump_asked() {
  static sem_t semaphore;
  return semaphore;
}

void ask_for_dump(int) { sem_post(&dump_asked()); }

void dump_all() {
  std::vector<Job*> open;
  {
    const std::lock_guard lock(sessions().mutex);
    for (const auto& [key, job] : sessions().open)
      if (job->process.is_here()) open.push_back(key);
  }
  for (Job* one : open)
    guarded([&]() -> int64_t {
      Use(one)->runtime().dump_last();
      return 0;
    });
}

// Once in each process.
void dump_on_signal() {
  const std::lock_guard lock(sessions().mutex);
  struct sigaction now {};
  sigaction(SIGUSR1, nullptr, &now);
  if (now.sa_handler != SIG_DFL) return;  // somebody else's, or ours already
  sem_init(&dump_asked(), 0, 0);
  std::thread([] {
    while (true) {
      while (sem_wait(&dump_asked()) != 0) {
      }
      dump_all();
    }
  }).detach();
  struct sigaction action {};
  action.sa_handler = ask_for_dump;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

SessionOptions session_options(const horon_session_options* given) {
  const auto read = read_struct(given, "horon_session_options");
  std::map<std::string, std::string> settings;
  for (const char* const* at = read.settings; at != nullptr && *at != nullptr; at += 2) {
    require(at[1] != nullptr, std::string("the setting '") + at[0] + "' has no value");
    settings[at[0]] = at[1];
  }
  SessionOptions options;
  options.job_settings = JobSettings::resolve(settings, process_env, "");
  if (read.takes_devices != 0)
    options.device = open_cuda_runtime(part_folders(options.job_settings.text("parts")));
  return options;
}

}  // namespace

bool Operation::has_result() const {
  return std::any_of(made.begin(), made.end(), [](const auto& one) { return one != nullptr; });
}

LastError& last_error() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): C has no other place for it
  thread_local LastError error = {};
  return error;
}

namespace {

void keep(const char* text, int kind, const std::vector<int>& ranks) {
  LastError& error = last_error();
  error.text[std::string_view(text).copy(error.text.data(), error.text.size() - 1)] = '\0';
  error.kind = kind;
  error.count = static_cast<int>(std::min(ranks.size(), error.ranks.size()));
  std::copy_n(ranks.begin(), error.count, error.ranks.begin());
}

}  // namespace

int keep_error() {
  try {
    throw;
  } catch (const UsageError& error) {
    keep(error.what(), HORON_USAGE_ERROR, {});
    return static_cast<int>(error.exit_code());
  } catch (const PeerLostError& error) {
    keep(error.what(), HORON_PEER_LOST, error.ranks());
    return static_cast<int>(error.exit_code());
  } catch (const TimeoutError& error) {
    keep(error.what(), HORON_TIMEOUT, error.ranks());
    return static_cast<int>(error.exit_code());
  } catch (const IoError& error) {
    keep(error.what(), HORON_IO_ERROR, {});
    return static_cast<int>(error.exit_code());
  } catch (const Error& error) {
    keep(error.what(), HORON_OTHER_ERROR, {});
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    keep(error.what(), HORON_OTHER_ERROR, {});
  }
  return static_cast<int>(ExitCode::kFailure);
}

Use::Use(horon_session* session) {
  {
    const std::lock_guard lock(sessions().mutex);
    job_ = find(session);
    require(job_ != nullptr, session == nullptr ? "call horon_init first"
                                                : "this session is closed or was never opened");
    require(job_->process.is_here(),
            "this process was forked from the one that opened the session and is not a rank; call "
            "horon_init to make it one");
    const std::lock_guard users(job_->mutex);
    ++job_->users;
  }
}

Use::~Use() {
  if (!job_) return;
  const std::lock_guard lock(job_->mutex);
  if (--job_->users == 0) job_->changed.notify_all();
}

horon_session* open_session(const horon_session_options* options, bool is_default) {
  mind_forks();
  Sessions& all = sessions();
  if (is_default) {
    const std::lock_guard lock(all.mutex);
    const auto job = find(nullptr);
    require((!job || !job->process.is_here()) && !all.opens_default,
            "horon_init was called before; call horon_shutdown first");
    all.opens_default = true;
  }
  const std::shared_ptr<void> opened(nullptr, [&](void*) {
    const std::lock_guard lock(all.mutex);
    if (is_default) all.opens_default = false;
  });
  const SessionOptions settings = session_options(options);
  auto job = std::make_shared<Job>();
  job->session = std::make_unique<Session>(settings);
  job->topology = job->session->topology();
  job->devices = settings.device;
  dump_on_signal();
  Job* key = job.get();
  {
    const std::lock_guard lock(all.mutex);
    if (is_default) all.by_default = key;
    all.open[key] = std::move(job);
  }
  // Each time, so that it runs before the exit handlers of everything started above.
  std::atexit(close_at_exit);
  return key;
}

void close_session(horon_session* session) {
  const std::shared_ptr<Job> job = take(session);
  require(job != nullptr, "there is nothing to shut down");
  while (!close(*job, kLastWait)) {
  }
}

bool has_default() {
  const std::lock_guard lock(sessions().mutex);
  const auto job = find(nullptr);
  return job && job->process.is_here();
}

int query(horon_session* session, int (*read)(const horon_session& job)) {
  const std::lock_guard lock(sessions().mutex);
  const auto job = find(session);
  return job ? read(*job) : -1;
}

bool is_closing(horon_session& job) {
  const std::lock_guard lock(job.mutex);
  return job.closes;
}

}  // namespace horon::c
