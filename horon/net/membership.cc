#include "horon/net/membership.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr int kMaxRanks = 1 << 20;

int read_number(const EnvLookup& env, const std::string& name, int64_t low, int64_t high) {
  return static_cast<int>(parse_integer(env(name).value_or(""), name, low, high));
}

void read_rank(const EnvLookup& env, const std::string& rank, const std::string& size,
               MembershipSpec& spec) {
  spec.size = read_number(env, size, 1, kMaxRanks);
  spec.rank = read_number(env, rank, 0, spec.size - 1);
}

bool all_loopback(const std::vector<Endpoint>& endpoints) {
  return std::all_of(endpoints.begin(), endpoints.end(),
                     [](const Endpoint& endpoint) { return is_loopback(endpoint.host); });
}

MembershipSpec read_horon(const EnvLookup& env) {
  MembershipSpec spec;
  require(env("HORON_RANK") && env("HORON_SIZE"), "HORON_RANK and HORON_SIZE go together");
  read_rank(env, "HORON_RANK", "HORON_SIZE", spec);
  spec.by = env("HORON_AGENT_ID") ? StartedBy::kLauncher : StartedBy::kHand;
  if (spec.size == 1 && !env("HORON_RENDEZVOUS")) return spec;
  require(env("HORON_RENDEZVOUS").has_value(),
          "HORON_RANK and HORON_SIZE are set but HORON_RENDEZVOUS is not: host:port where rank 0 "
          "serves the others");
  spec.rendezvous = parse_endpoints(*env("HORON_RENDEZVOUS"));
  spec.serves = spec.by == StartedBy::kHand && spec.rank == 0;
  spec.one_host = all_loopback(spec.rendezvous);
  spec.meeting = fmt::format("hand-{:016x}", hash_text(*env("HORON_RENDEZVOUS")));
  return spec;
}

MembershipSpec read_tf_config(const std::string& text, const IsOwnAddress& is_own) {
  const TfConfig config = parse_tf_config(text, is_own);
  MembershipSpec spec;
  spec.by = StartedBy::kTfConfig;
  spec.role = config.type;
  spec.rank = config.rank;
  spec.size = config.size;
  if (config.size <= 1) return spec;
  spec.rendezvous = {config.leader};
  spec.serves = config.rank == 0;
  std::string tasks;
  spec.one_host = true;
  for (const auto& [type, endpoints] : config.cluster) {
    tasks += type + "=" + format_endpoints(endpoints) + ";";
    spec.one_host = spec.one_host && all_loopback(endpoints);
  }
  spec.meeting = fmt::format("tf-{:016x}", hash_text(tasks));
  return spec;
}

MembershipSpec read_slurm(const EnvLookup& env) {
  MembershipSpec spec;
  spec.by = StartedBy::kSlurm;
  read_rank(env, "SLURM_PROCID",
            env("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", spec);
  if (spec.size == 1) return spec;
  const std::string job =
      fmt::format("{}.{}", env("SLURM_JOB_ID").value_or("0"), env("SLURM_STEP_ID").value_or("0"));
  spec.serves = spec.rank == 0;
  spec.one_host = env("SLURM_STEP_NUM_NODES").value_or(env("SLURM_NNODES").value_or("")) == "1";
  // The port of srun tells steps apart whose numbers come again after a reset of Slurm.
  spec.meeting = fmt::format("slurm-{}-{}", job, env("SLURM_SRUN_COMM_PORT").value_or("0"));
  if (spec.one_host) return spec;
  if (env("HORON_RENDEZVOUS")) {
    spec.rendezvous = parse_endpoints(*env("HORON_RENDEZVOUS"));
  } else {
    const auto nodes = env("SLURM_STEP_NODELIST").value_or(env("SLURM_JOB_NODELIST").value_or(""));
    const int port = 10000 + static_cast<int>(hash_text(job) % 20000);
    spec.rendezvous = {{first_of_nodelist(nodes), port}};
  }
  return spec;
}

}  // namespace

std::string MembershipSpec::describe() const {
  const auto by_whom = [&]() -> std::string {
    switch (by) {
      case StartedBy::kNobody:
        return "alone";
      case StartedBy::kLauncher:
        return "started by horon run";
      case StartedBy::kHand:
        return "started by hand";
      case StartedBy::kTfConfig:
        return fmt::format("{} of TF_CONFIG", role);
      case StartedBy::kMpi:
        return "started by mpirun";
      case StartedBy::kSlurm:
        return "started by srun";
    }
    return "";
  };
  return fmt::format("rank {} of {}, {}", rank, size, by_whom());
}

MembershipSpec read_membership(const EnvLookup& env, const IsOwnAddress& is_own) {
  // `horon run --mpi` names the rank too, but the ranks meet through MPI.
  const bool through_mpi = env("OMPI_COMM_WORLD_SIZE") || env("PMI_SIZE");
  const bool named = env("HORON_RANK") || env("HORON_SIZE");
  if (named && !(through_mpi && !env("HORON_RENDEZVOUS"))) return read_horon(env);
  if (env("TF_CONFIG") && !env("TF_CONFIG")->empty())
    return read_tf_config(*env("TF_CONFIG"), is_own);
  if (through_mpi) {
    MembershipSpec spec;
    spec.by = StartedBy::kMpi;
    const bool open_mpi = env("OMPI_COMM_WORLD_SIZE").has_value();
    read_rank(env, open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK",
              open_mpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE", spec);
    const std::string local =
        env(open_mpi ? "OMPI_COMM_WORLD_LOCAL_SIZE" : "MPI_LOCALNRANKS").value_or("");
    spec.one_host = local == std::to_string(spec.size);
    spec.serves = spec.size > 1 && spec.rank == 0;
    return spec;
  }
  if (env("SLURM_PROCID") && env("SLURM_STEP_ID")) return read_slurm(env);
  return {};
}

std::string first_of_nodelist(const std::string& list) {
  const size_t open = list.find('[');
  const size_t comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", open);
  require(end != std::string::npos, fmt::format("'{}' is not a list of nodes", list));
  return list.substr(0, open) + list.substr(open + 1, end - open - 1);
}

bool is_own_address(const std::string& host) {
  const auto own = interface_addresses();
  try {
    for (const std::string& address : resolve_host(host)) {
      const bool found = std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& entry) {
        return entry.address == address;
      });
      if (found || is_loopback(address)) return true;
    }
  } catch (const IoError&) {  // a name that nobody knows is not ours
  }
  return false;
}

Secret find_secret(const MembershipSpec& spec, const std::string& secret_file, bool insecure) {
  if (!secret_file.empty()) return Secret::from_file(secret_file);
  if (insecure) return Secret::insecure(spec.meeting);
  throw UsageError(
      fmt::format("{}: ranks on several hosts need a secret; make one with `horon secret FILE`, "
                  "copy it to every host (mode 0600), set HORON_SECRET_FILE=FILE, or let everybody "
                  "in with HORON_INSECURE=1 (--insecure)",
                  spec.describe()),
      ExitCode::kAuth);
}

std::string private_folder() {
  const auto runtime = process_env("XDG_RUNTIME_DIR");
  const std::string path =
      runtime && access(runtime->c_str(), W_OK) == 0
          ? *runtime + "/horon"
          : (std::filesystem::temp_directory_path() / fmt::format("horon-{}", geteuid())).string();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) throw io_error("mkdir " + path);
  struct stat info {};
  const bool ours = lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    info.st_uid == geteuid() && (info.st_mode & 0077) == 0;
  if (!ours) {
    throw UsageError(fmt::format("{} is not a folder that only this user can enter; remove it, or "
                                 "set TMPDIR",
                                 path),
                     ExitCode::kAuth);
  }
  return path;
}

}  // namespace horon
