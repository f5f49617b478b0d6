#include "horon/base/horovod.h"

#include <fmt/format.h>

#include <array>

#include "horon/base/text.h"

namespace horon {
namespace {

struct Idle {
  const char* variable;
  const char* why;
};

constexpr const char* kNoCycle = "there is no polling cycle";
constexpr const char* kByTable = "chosen by the table, see `horon info --algorithms`";
constexpr const char* kNoTuning = "a few bucket sizes are tried and the best is kept";
constexpr const char* kBackend = "HORON_BACKEND selects the backend";
constexpr const char* kNoChoice = "there is no such choice";

constexpr std::array kIdle = {
    Idle{"HOROVOD_CYCLE_TIME", kNoCycle},
    Idle{"HOROVOD_TIMELINE_MARK_CYCLES", kNoCycle},
    Idle{"HOROVOD_CACHE_CAPACITY", "steady state needs no negotiation, so there is no cache"},
    Idle{"HOROVOD_HIERARCHICAL_ALLREDUCE", "several hosts always reduce in two levels"},
    Idle{"HOROVOD_HIERARCHICAL_ALLGATHER", kByTable},
    Idle{"HOROVOD_TORUS_ALLREDUCE", kByTable},
    Idle{"HOROVOD_BATCH_D2D_MEMCOPIES", kNoChoice},
    Idle{"HOROVOD_DISABLE_GROUP_FUSION", kNoChoice},
    Idle{"HOROVOD_ENABLE_ASYNC_COMPLETION", kNoChoice},
    Idle{"HOROVOD_ENABLE_XLA_OPS", kNoChoice},
    Idle{"HOROVOD_DISABLE_NVTX_RANGES", kNoChoice},
    Idle{"HOROVOD_NUM_NCCL_STREAMS", "one stream is enough"},
    Idle{"HOROVOD_DYNAMIC_PROCESS_SETS", "process sets can always be added"},
    Idle{"HOROVOD_ADASUM_MPI_CHUNK_SIZE", "there is no Adasum"},
    Idle{"HOROVOD_THREAD_AFFINITY", "`horon run` binds each rank to its own cores"},
    Idle{"HOROVOD_MPI_THREADS_DISABLE", "MPI is always used with threads"},
    Idle{"HOROVOD_CONTROLLER", kBackend},
    Idle{"HOROVOD_CPU_OPERATIONS", kBackend},
    Idle{"HOROVOD_CCL_CACHE", kBackend},
    Idle{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "ranks meet at HORON_RENDEZVOUS"},
    Idle{"HOROVOD_GLOO_RENDEZVOUS_PORT", "ranks meet at HORON_RENDEZVOUS"},
    Idle{"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", kNoTuning},
    Idle{"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", kNoTuning},
    Idle{"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", kNoTuning},
    Idle{"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", kNoTuning},
    Idle{"HOROVOD_STALL_CHECK_DISABLE", "stalled ranks are always detected and named"},
    Idle{"HOROVOD_LOG_HIDE_TIME", "log lines always contain the time"},
};

}  // namespace

std::optional<std::string> read_horovod(const Setting& setting, std::string_view variable,
                                        const std::string& given) {
  if (given.empty()) return std::nullopt;
  const auto number = parse_number(given);
  const bool is_zero = number && *number == 0;
  if (variable == "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" && is_zero) return "365d";  // never
  if (setting.type == SettingType::kDuration) return number ? given + "s" : given;
  if (variable == "HOROVOD_TIMELINE" && given == "DYNAMIC") return std::nullopt;  // always possible
  if (variable == "HOROVOD_AUTOTUNE")
    return number.value_or(0) > 0 ? std::optional("horon-autotune.json") : std::nullopt;
  return given;
}

std::vector<std::string> explain_idle_horovod(const EnvLookup& env) {
  std::vector<std::string> lines;
  for (const Idle& idle : kIdle) {
    if (!env(idle.variable).value_or("").empty())
      lines.push_back(fmt::format("{} has no meaning here: {}", idle.variable, idle.why));
  }
  return lines;
}

}  // namespace horon
