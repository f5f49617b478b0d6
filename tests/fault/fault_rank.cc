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
#include <optional>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/runtime/runtime.h"
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
  std::optional<ExactSum> sum;  // made while all was well
  int victim = 0;
  double bound = 1.0;  // seconds in which survivors must know
  bool is_victim() const { return info.rank == victim; }
  void say(const std::string& what) const {
    info.store->set(what, fmt::format("{:.6f}", now()), soon());
  }
  double hear(const std::string& what) const { return std::stod(info.store->get(what, soon())); }
  static Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
};

// Must throw what killed the communicator, naming the victim; returns when it did.
template <typename ErrorType>
double expect_blame(const Scene& scene, const std::string& what,
                    const std::function<void()>& call) {
  try {
    call();
  } catch (const ErrorType& error) {
    const double when = now();
    check(error.ranks() == std::vector<int>{scene.victim},
          fmt::format("{} blames the wrong rank: {}", what, error.what()));
    std::cerr << error.what() << "\n";
    return when;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{} fails in another way: {}", what, error.what()));
  }
  throw std::runtime_error(what + " succeeds without the victim");
}

// An operation that must fail for good, and everything after it; returns when it failed.
template <typename ErrorType>
double expect_dead(Scene& scene, const Request& request) {
  float one = 1;
  const double when =
      expect_blame<ErrorType>(scene, "the operation", [&] { scene.comm->run(request); });
  expect_blame<ErrorType>(scene, "the next operation", [&] { scene.comm->barrier(); });
  expect_blame<ErrorType>(scene, "allocate", [&] { scene.comm->allocate(1, DType::kF32); });
  expect_blame<ErrorType>(scene, "exact_sum", [&] { scene.comm->exact_sum(1, DType::kF32, 8); });
  expect_blame<ErrorType>(scene, "an exact sum that is there already", [&] {
    scene.sum->add(0, {&one, 1, DType::kF32, {}});
  });
  check(!scene.comm->dead_reason().empty(), "dead, but does not say so");
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

// The ranks that are left, numbered anew.
BootstrapInfo survivors(const Scene& scene) {
  BootstrapInfo next = scene.info;
  next.name = "next";
  next.size -= 1;
  next.rank -= scene.info.rank > scene.victim ? 1 : 0;
  return next;
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
  const auto comm = make_communicator(survivors(scene));
  const OwnedBuffer fresh = comm->allocate(4U << 20, DType::kF32);
  for (float& value : fresh.as<float>()) value = 0.5F;
  comm->all_reduce(fresh.view());
  scene.say(fmt::format("rebuilt/{}", scene.info.rank));
  scene.hear("woken");
  const float expected = 0.5F * static_cast<float>(comm->size());
  const auto values = fresh.as<float>();
  check(std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; }),
        "the woken victim changed the new communicator's memory");
  comm->barrier();
}

std::vector<TensorSpec> two_tensors() {
  std::vector<TensorSpec> specs(2);
  specs[0].name = "weight";
  specs[0].count = 50'000;
  specs[1].name = "bias";
  specs[1].count = 10;
  return specs;
}

// Three steps of declared tensors.
void train(Runtime& runtime, const BucketMemory& memory) {
  for (int step = 0; step < 3; ++step) {
    std::vector<Work> works;
    for (size_t i = 0; i < memory.views.size(); ++i) {
      auto* values = static_cast<float*>(memory.views[i].data);
      std::fill_n(values, memory.views[i].count, static_cast<float>(step + 1));
      works.push_back(runtime.all_reduce(two_tensors()[i].name, memory.views[i]));
    }
    for (const Work& work : works) work.wait();
    for (const BufferView& view : memory.views) {
      const auto* values = static_cast<const float*>(view.data);
      const auto want = static_cast<float>((step + 1) * runtime.size());
      check(std::all_of(values, values + view.count, [&](float value) { return value == want; }),
            "the sum is wrong");
    }
  }
}

// The victim dies while a runtime waits for it. Its operations and new buckets name the victim; a
// new runtime over a new communicator of those that are left goes on.
void kill_runtime(Scene& scene) {
  Runtime runtime(std::move(scene.comm));
  const BucketMemory memory = runtime.allocate_buckets(two_tensors());
  train(runtime, memory);
  if (scene.is_victim()) {
    scene.say("ready");
    wait_for_end_of_times();
  }
  scene.say(fmt::format("waiting/{}", scene.info.rank));
  const double when = expect_blame<PeerLostError>(
      scene, "a named operation", [&] { runtime.all_reduce("weight", memory.views[0]).wait(); });
  const double after = when - scene.hear("killed");
  check(after < scene.bound, fmt::format("knew only after {:.3f} s", after));
  expect_blame<PeerLostError>(scene, "the next named operation",
                              [&] { runtime.all_reduce("bias", memory.views[1]).wait(); });
  expect_blame<PeerLostError>(scene, "allocate_buckets",
                              [&] { runtime.allocate_buckets(two_tensors()); });
  expect_blame<PeerLostError>(scene, "allocate of the runtime's communicator",
                              [&] { runtime.world().allocate(1, DType::kF32); });
  Runtime next(make_communicator(survivors(scene)));
  train(next, next.allocate_buckets(two_tensors()));
}

// Closing is not dying, but the others cannot go on either.
void leaves(Scene& scene) {
  warm_up(scene);
  if (scene.is_victim()) {
    scene.comm.reset();  // the exact sum that is still there does not keep it open
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
      {"kill_waiting", kill_waiting},   {"kill_parent", kill_parent},  {"kill_busy", kill_busy},
      {"never_calls", never_calls},     {"stopped", stopped},          {"leaves", leaves},
      {"late_mismatch", late_mismatch}, {"kill_runtime", kill_runtime}};
  Scene scene;
  scene.info = args.bootstrap();
  if (!mpi_flavour_of_environment().empty()) {
    const MpiIdentity world = mpi_identity({.part_folders = part_folders("")});
    scene.info.rank = world.rank;
    scene.info.size = world.size;
  }
  scene.victim = args.number("victim", 0);
  scene.comm = make_communicator(scene.info);
  scene.sum = scene.comm->exact_sum(1, DType::kF32, 8);
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
