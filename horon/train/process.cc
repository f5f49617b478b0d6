// The replicas of one process, and the door through which `horon` comes in.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "horon/base/api.h"
#include "horon/base/error.h"
#include "horon/base/signal.h"
#include "horon/base/version.h"
#include "horon/comm/join.h"
#include "horon/train/bench.h"
#include "horon/train/trainer.h"

namespace horon::train {

static int report(const Error& error) {
  fmt::print(stderr, "horon: {}\n", error.what());
  return static_cast<int>(error.exit_code());
}

namespace {

// Each replica is a rank of its own: 2 processes of 2 are 4 ranks.
int run_replicas(const TrainConfig& config, bool only_evaluates, const World& world,
                 const Knobs& knobs, std::stop_token stop) {
  const int here = replicas_of(config);
  if (here == 1) {
    const TrainResult result =
        run_rank({config, make_communicator(world, knobs), world.store, stop, only_evaluates, 1});
    return static_cast<int>(result.interrupted ? ExitCode::kInterrupted : ExitCode::kOk);
  }
  const std::shared_ptr<Store> store =
      world.store ? make_prefix_store(world.store, "replicas/") : make_memory_store();
  std::vector<int> codes(static_cast<size_t>(here));
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < here; ++i) {
      threads.emplace_back([&, i] {
        try {
          BootstrapInfo info;
          info.knobs = knobs;
          info.rank = world.rank * here + i;
          info.size = world.size * here;
          info.store = store;
          const TrainResult result =
              run_rank({config, make_communicator(info), store, stop, only_evaluates, here});
          codes[static_cast<size_t>(i)] =
              static_cast<int>(result.interrupted ? ExitCode::kInterrupted : ExitCode::kOk);
        } catch (const Error& error) {
          codes[static_cast<size_t>(i)] = report(error);
        } catch (const std::exception& error) {
          codes[static_cast<size_t>(i)] = report(Error(error.what()));
        }
      });
    }
  }
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace

int run_process(const TrainConfig& config, bool only_evaluates) {
  try {
    const StopOnSignal signals;
    // LibTorch 2.15's bf16 convolutions were seen to end with SIGILL (tilezero) on a CPU with AMX.
    if (config.dtype == "bf16") setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", 0);

    const Knobs knobs = Knobs::resolve({}, process_env, "");
    const World world = join_world(knobs);
    check_config(config, world.size * replicas_of(config));
    return run_replicas(config, only_evaluates, world, knobs, signals.token());
  } catch (const Error& error) {
    return report(error);
  } catch (const std::exception& error) {
    return report(Error(error.what()));
  }
}

}  // namespace horon::train

// `plan`: JSON, see bench.h. What was measured goes to the file that it names; the exit code.
extern "C" HORON_API int horon_train_bench(const char* plan) {
  try {
    horon::train::run_bench(plan);
    return 0;
  } catch (const horon::Error& error) {
    return horon::train::report(error);
  } catch (const std::exception& error) {
    return horon::train::report(horon::Error(error.what()));
  }
}

extern "C" HORON_API const char* horon_part_version() { return horon::kBuildId; }

// `config`: JSON of TrainConfig. The exit code; what went wrong was printed.
extern "C" HORON_API int horon_train_run(const char* config, int only_evaluates) {
  try {
    return horon::train::run_process(horon::train::config_from_json(nlohmann::json::parse(config)),
                                     only_evaluates != 0);
  } catch (const std::exception& error) {
    return horon::train::report(horon::Error(error.what()));
  }
}
