// One rank of a fault scenario. Tells the test through the store where it is; ends with 0 only if
// what it saw is what is promised.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/mpi/mpi_part.h"
#include "tests/support/rank_args.h"

namespace horon::testing_support {
namespace {

double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void check(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

struct Scene {
  BootstrapInfo info;
  std::unique_ptr<Communicator> comm;
  int victim = 0;
  double bound = 1.0;  // seconds in which survivors must know
  bool is_victim() const { return info.rank == victim; }
  void say(const std::string& what) const {
    info.store->set(what, fmt::format("{:.6f}", now()), soon());
  }
  double hear(const std::string& what) const { return std::stod(info.store->get(what, soon())); }
  static Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
};

// An operation that must fail for good; returns when it failed.
template <typename ErrorType>
double expect_dead(Scene& scene, const Request& request) {
  double when = 0;
  try {
    scene.comm->run(request);
    throw std::runtime_error("the operation succeeded without the victim");
  } catch (const ErrorType& error) {
    when = now();
    check(error.ranks() == std::vector<int>{scene.victim},
          std::string("blames the wrong rank: ") + error.what());
    std::cerr << error.what() << "\n";
  }
  bool still_dead = false;
  try {
    scene.comm->barrier();
  } catch (const ErrorType&) {
    still_dead = true;
  }
  check(still_dead, "the next operation did not fail");
  check(!scene.comm->dead_reason().empty(), "dead, but does not say so");
  bool refuses = false;
  try {
    scene.comm->allocate(1, DType::kF32);
  } catch (const Error&) {
    refuses = true;
  }
  check(refuses, "memory of a dead communicator was handed out");
  return when;
}

void warm_up(Scene& scene) {
  std::vector<float> data(100'000, 1.0F);
  for (int i = 0; i < 3; ++i) scene.comm->all_reduce(view_of(data));
}

[[noreturn]] void wait_for_end_of_times() {
  while (true) pause();
}

// The victim dies while the others wait for it.
void kill_waiting(Scene& scene) {
  warm_up(scene);
  if (scene.is_victim()) {
    scene.say("ready");
    wait_for_end_of_times();
  }
  std::vector<float> data(100'000, 1.0F);
  scene.say(fmt::format("waiting/{}", scene.info.rank));
  const double when = expect_dead<PeerLostError>(scene, Request::all_reduce(view_of(data)));
  const double after = when - scene.hear("killed");
  check(after < scene.bound, fmt::format("knew only after {:.3f} s", after));
}

// The same, with a child of the victim that holds all its descriptors and lives on.
void kill_parent(Scene& scene) {
  if (scene.is_victim() && fork() == 0) {
    wait_for_end_of_times();
  }
  kill_waiting(scene);
}

// The victim dies in the middle of the traffic.
void kill_busy(Scene& scene) {
  warm_up(scene);
  scene.say(scene.is_victim() ? "ready" : fmt::format("waiting/{}", scene.info.rank));
  const OwnedBuffer data = scene.comm->allocate(1U << 20, DType::kF32);
  try {
    while (true) scene.comm->all_reduce(data.view());
  } catch (const PeerLostError& error) {
    const double after = now() - scene.hear("killed");
    check(error.ranks() == std::vector<int>{scene.victim},
          std::string("blames the wrong rank: ") + error.what());
    check(after < scene.bound, fmt::format("knew only after {:.3f} s", after));
  }
}

// The victim is there but does not come: TimeoutError at the deadline, naming it.
void never_calls(Scene& scene) {
  warm_up(scene);
  if (scene.is_victim()) {
    scene.say("ready");
    scene.hear("over");
    return;
  }
  scene.say(fmt::format("waiting/{}", scene.info.rank));
  std::vector<float> data(1000, 1.0F);
  const double start = now();
  const double when = expect_dead<TimeoutError>(
      scene, Request::all_reduce(view_of(data), {.timeout = Milliseconds(1500)}));
  check(when - start > 1.4 && when - start < 4.0,
        fmt::format("timed out after {:.3f} s", when - start));
  scene.say(fmt::format("survived/{}", scene.info.rank));
  scene.hear("over");  // an mpirun ends the others when the first one leaves
}

// Stopped in mid-traffic; the survivors go on with a new communicator; when the victim wakes up it
// must not be able to touch anything of theirs.
void stopped(Scene& scene) {
  warm_up(scene);
  const OwnedBuffer data = scene.comm->allocate(4U << 20, DType::kF32);
  scene.say(scene.is_victim() ? "ready" : fmt::format("waiting/{}", scene.info.rank));
  try {
    while (true) scene.comm->run(Request::all_reduce(data.view(), {.timeout = Milliseconds(1500)}));
  } catch (const Error& error) {
    if (scene.is_victim()) {  // woken up in a dead communicator
      scene.say("woken");
      return;
    }
    const auto* timeout = dynamic_cast<const TimeoutError*>(&error);
    check(timeout != nullptr && timeout->ranks() == std::vector<int>{scene.victim}, error.what());
    const double after = now() - scene.hear("stopped");
    check(after > 1.3 && after < 4.5, fmt::format("timed out after {:.3f} s", after));
  }
  BootstrapInfo next = scene.info;
  next.name = "next";
  next.size -= 1;
  next.rank -= scene.info.rank > scene.victim ? 1 : 0;
  const auto comm = make_communicator(next);
  const OwnedBuffer fresh = comm->allocate(4U << 20, DType::kF32);
  for (float& value : fresh.as<float>()) value = 0.5F;
  comm->all_reduce(fresh.view());
  scene.say(fmt::format("rebuilt/{}", scene.info.rank));
  scene.hear("woken");
  const float expected = 0.5F * static_cast<float>(next.size);
  const auto values = fresh.as<float>();
  check(std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; }),
        "the woken victim changed the new communicator's memory");
  comm->barrier();
}

// Closing is not dying, but the others cannot go on either.
void leaves(Scene& scene) {
  warm_up(scene);
  if (scene.is_victim()) {
    scene.comm.reset();
    scene.say("ready");
    scene.hear("over");
    return;
  }
  scene.hear("ready");
  scene.say(fmt::format("waiting/{}", scene.info.rank));
  std::vector<float> data(1000, 1.0F);
  expect_dead<PeerLostError>(scene, Request::all_reduce(view_of(data)));
  scene.say(fmt::format("survived/{}", scene.info.rank));
}

// The victim asks for something else, late: all know within a second of its call, and go on.
void late_mismatch(Scene& scene) {
  warm_up(scene);
  std::vector<float> data(1000, 1.0F);
  if (scene.is_victim()) {
    for (int rank = 0; rank < scene.info.size; ++rank) {
      if (rank != scene.victim) scene.hear(fmt::format("waiting/{}", rank));
    }
    scene.say("ready");
    scene.say("killed");  // the moment that counts
  } else {
    scene.say(fmt::format("waiting/{}", scene.info.rank));
  }
  bool thrown = false;
  try {
    scene.comm->all_reduce(view_of(data).slice(0, scene.is_victim() ? 999 : 1000));
  } catch (const UsageError& error) {
    thrown = std::string(error.what()).find("f32[999]") != std::string::npos;
    check(now() - scene.hear("killed") < 1.0, "took more than a second");
  }
  check(thrown, "no UsageError");
  scene.comm->all_reduce(view_of(data));
  check(data[0] == static_cast<float>(scene.info.size), "does not work on");
}

int run(const RankArgs& args) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing of a test that was killed stays behind
  const std::map<std::string, std::function<void(Scene&)>> scenarios = {
      {"kill_waiting", kill_waiting},  {"kill_parent", kill_parent}, {"kill_busy", kill_busy},
      {"never_calls", never_calls},    {"stopped", stopped},         {"leaves", leaves},
      {"late_mismatch", late_mismatch}};
  Scene scene;
  scene.info = args.bootstrap();
  if (!mpi_flavour_of_environment().empty()) {
    const MpiWorld world = mpi_world({.part_folders = part_folders("")});
    scene.info.rank = world.rank;
    scene.info.size = world.size;
  }
  scene.victim = args.number("victim", 0);
  scene.comm = make_communicator(scene.info);
  scenarios.at(args.text("scenario"))(scene);
  return 0;
}

}  // namespace
}  // namespace horon::testing_support

int main(int argc, char** argv) {
  int code = 0;
  try {
    code = horon::testing_support::run(horon::testing_support::RankArgs(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "unexpected: " << error.what() << "\n";
    code = 1;
  }
  std::cerr.flush();
  _exit(code);  // an MPI that waits for a lost peer would not let us go
}
