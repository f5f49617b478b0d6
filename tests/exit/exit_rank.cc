// One rank of a C++ program that ends as users' programs do: by main's return or exit(), and not
// always after everything was closed.
//   HELD   stack     a Session in main
//          static    a static Session
//          late      a static pointer that main fills with a Session
//          runtime   the same with a Runtime
//          comm      the same with a Communicator
//   END    return    main returns; rank EARLY a little before the others
//          exit      the same by exit() in the middle
//          status    main returns 7
//          flight    rank EARLY exits while an operation is in flight that the others never ask for
//          thread    the same, and another thread is in the operation
//          loop      all-reduces until an error, which it prints and returns
//          calm      as loop, but returns 0
//          throw     as loop, but rank EARLY throws something of its own; main returns 10
//          unheard   the same, and the others do not come to operations any more
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "horon/base/error.h"
#include "horon/comm/enter_job.h"
#include "horon/runtime/session.h"

namespace {

using horon::Communicator;
using horon::Runtime;
using horon::Session;

struct Static {
  horon::Membership world;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Session> session;
};
Static held;  // made before main, so that it goes after everything that main makes

struct HeldObjects {
  Communicator* world = nullptr;
  Runtime* runtime = nullptr;  // null: a communicator alone
};

HeldObjects hold(const std::string& how, std::unique_ptr<Session>& on_stack) {
  if (how == "stack" || how == "late") {
    auto& session = how == "stack" ? on_stack : held.session;
    session = std::make_unique<Session>();
    return {&session->world(), &session->runtime()};
  }
  if (how == "static") {
    static const Session session;
    return {&session.world(), &session.runtime()};
  }
  const horon::JobSettings job_settings = horon::JobSettings::resolve({}, horon::process_env, "");
  held.world = horon::enter_job(job_settings);
  auto comm = horon::make_communicator(horon::bootstrap_info(held.world, job_settings));
  if (how == "comm") {
    held.comm = std::move(comm);
    return {held.comm.get(), nullptr};
  }
  horon::RuntimeOptions options = horon::runtime_options(job_settings);
  options.store = held.world.store;
  held.runtime = std::make_unique<Runtime>(std::move(comm), options);
  return {&held.runtime->world(), held.runtime.get()};
}

// More than a buffer of stdio takes: the end of it is lost if the process ends badly.
void say_much(int rank) {
  for (int line = 0; line < 1000; ++line) std::printf("rank %d line %d\n", rank, line);
  std::printf("rank %d end\n", rank);
}

void sum_once(const HeldObjects& place) {
  std::array<float, 4> value = {1, 1, 1, 1};
  if (place.runtime != nullptr) {
    place.runtime->all_reduce("x", horon::view_of(value)).wait();
  } else {
    place.world->all_reduce(horon::view_of(value), {.name = "x"});
  }
  if (value[3] != static_cast<float>(place.world->size())) throw std::runtime_error("wrong sum");
}

horon::Work start_alone(const HeldObjects& place) {
  static std::array<float, 4> data = {};
  if (place.runtime != nullptr) return place.runtime->all_reduce("alone", horon::view_of(data));
  return place.world->start(horon::Request::all_reduce(horon::view_of(data), {.name = "alone"}));
}

// On a thread of its own, whose number it returns.
int run_alone(const HeldObjects& place) {
  static std::atomic<int> thread = 0;
  std::thread([place] {
    std::array<float, 4> data = {};
    thread = gettid();
    try {
      if (place.runtime != nullptr) {
        place.runtime->run_all_reduce("alone", horon::view_of(data));
      } else {
        place.world->all_reduce(horon::view_of(data), {.name = "alone"});
      }
    } catch (const std::exception&) {
    }
  }).detach();
  while (thread == 0) std::this_thread::yield();
  return thread;
}

void wait_until_asleep(int thread) {
  std::string number;
  std::string name;
  std::string state;
  while (state != "S") {
    std::ifstream(fmt::format("/proc/self/task/{}/stat", thread)) >> number >> name >> state;
    std::this_thread::yield();
  }
}

void wait_until_gone(int pid) {
  while (kill(pid, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// Rank `early` ends with work in flight; the others stay until it is gone.
int end_in_flight(const HeldObjects& place, int early, bool waits) {
  const int rank = place.world->rank();
  std::array<int, 1> pid = {getpid()};
  place.world->broadcast(horon::view_of(pid), early);
  if (rank != early) {
    const horon::Stopwatch watch;
    wait_until_gone(pid[0]);
    std::printf("gone after %.1f s\n", watch.seconds());
    return 0;
  }
  if (waits) {  // by a thread that is slow to leave: it is held up for longer than work in flight
                // may take
    const int thread = run_alone(place);
    wait_until_asleep(thread);
    signal(SIGUSR2, [](int) { sleep(3); });
    tgkill(getpid(), thread, SIGUSR2);
  } else {
    start_alone(place);
  }
  std::exit(0);
}

int end(const HeldObjects& place, const std::string& how, int early) {
  const int rank = place.world->rank();
  for (int step = 0; step < 3; ++step) sum_once(place);
  say_much(rank);
  if (how == "flight" || how == "thread") return end_in_flight(place, early, how == "thread");
  if (how == "loop" || how == "calm" || how == "throw" || how == "unheard") {
    std::printf("rank %d pid %d\n", rank, getpid());
    std::fflush(stdout);
    for (int step = 0;; ++step) {
      const bool is_trouble = (how == "throw" || how == "unheard") && step == 20;
      if (is_trouble && rank == early) throw std::runtime_error("my own trouble");
      while (is_trouble && how == "unheard") pause();
      sum_once(place);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  if (rank != early) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (how == "exit") std::exit(0);
  return how == "status" ? 7 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    std::unique_ptr<Session> on_stack;
    const HeldObjects place = hold(argv[1], on_stack);
    return end(place, argv[2], std::atoi(argv[3]));
  } catch (const horon::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return std::string(argv[2]) == "calm" ? 0 : static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 10;
  }
}
