#include "horon/bench/all_reduce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/start/backends.h"
#include "horon/device/dtype.h"
#include "horon/report/plot.h"

namespace horon::bench {
namespace {

constexpr uint64_t kLargeBytes = 100U << 20;  // the "100MB" of the summary
constexpr uint64_t kSmallBytes = 64U << 10;   // and its "64KB"

std::vector<uint64_t> parse_sizes(const AllReduceOptions& options) {
  std::string text = options.sizes;
  if (text.empty()) {
    text = options.quick ? "4,64KB,1MB,100MB"
                         : "4,64,1KB,4KB,16KB,64KB,256KB,1MB,4MB,16MB,64MB,100MB,256MB";
  }
  std::vector<uint64_t> sizes;
  for (const std::string& one : split(text, ',')) {
    sizes.push_back(parse_bytes(one));
    require(sizes.back() >= 1 && sizes.back() <= (4ULL << 30),
            fmt::format("size '{}' is not 1 byte to 4 GB", one));
  }
  return sizes;
}

// The raw peers are called with floats; halves stand beside floats of the same bytes.
bool needs_floats(const std::string& contender) {
  return contender.rfind("raw_", 0) == 0 || contender == "shm_f16" || contender == "shm_bf16";
}

bool needs_mpi(const std::string& contender) { return contender.find("mpi") != std::string::npos; }

// Over TCP even within this host; they run in a job of their own, because a process has one MPI.
bool is_over_tcp(const std::string& contender) {
  return contender.find("tcp") != std::string::npos;
}

// Contenders that cannot run here are left out with a line, or an error if they were asked for.
std::vector<std::string> find_mpirun(const AllReduceOptions& options,
                                     const JobSettings& job_settings, int ranks,
                                     std::vector<std::string>& contenders, const Say& say) {
  if (std::none_of(contenders.begin(), contenders.end(), needs_mpi)) return {};
  std::string why;
  auto command = mpirun_command(options.mpi, ranks, part_folders(job_settings.text("parts")), why);
  if (!command.empty()) {
    if (is_over_tcp(contenders.back()))
      command.insert(command.end(), {"--mca", "pml", "ob1", "--mca", "btl", "self,tcp"});
    return command;
  }
  require(options.backends.empty(), "mpi was requested: " + why);
  say("without mpi: " + why);
  std::erase_if(contenders, needs_mpi);
  return {};
}

// The backend whose algorithms a contender goes by; empty: it is none of ours.
std::string backend_of(const std::string& contender) {
  if (contender == "floor" || contender.rfind("raw_", 0) == 0) return "";
  if (contender.rfind("tcp", 0) == 0) return "tcp";
  if (contender == "mpi_tcp") return "mpi";
  return contender == "exact" || contender.rfind("shm", 0) == 0 ? "shm" : contender;
}

// The same for those whose backend does not have what the setting `algorithm` asks for.
void drop_without_algorithm(const AllReduceOptions& options, const JobSettings& job_settings,
                            std::vector<std::string>& contenders, const Say& say) {
  for (const std::string& name : std::vector<std::string>(contenders)) {
    const std::string why = check_algorithms(backend_of(name), job_settings);
    if (why.empty()) continue;
    require(options.backends.empty(), why);
    say(fmt::format("without {}: {}", name, why));
    std::erase(contenders, name);
  }
}

// The part of the contenders that one job measures, each beside the floor.
std::vector<std::string> contenders_of_job(const AllReduceOptions& options, bool over_tcp) {
  auto contenders = contenders_of(options);
  std::erase_if(contenders, [&](const std::string& name) {
    return name != "floor" && is_over_tcp(name) != over_tcp;
  });
  return contenders;
}

AllReduceJob prepare(const AllReduceOptions& options, const JobSettings& job_settings, int ranks,
                     std::vector<std::string> contenders, const Say& say) {
  AllReduceJob measurement;
  BenchPlan& plan = measurement.plan;
  plan.contenders = std::move(contenders);
  plan.sizes = parse_sizes(options);
  plan.dtype = options.dtype;
  plan.seconds = options.quick ? 5.0 : 8.0;
  plan.max_rounds = options.quick ? 25 : 60;
  plan.shows_progress = isatty(STDERR_FILENO) != 0;
  if (parse_dtype(options.dtype) != DType::kF32) std::erase_if(plan.contenders, needs_floats);
  drop_without_algorithm(options, job_settings, plan.contenders, say);
  measurement.job.ranks = ranks;
  measurement.job.arguments = {"bench", "rank"};
  measurement.job.mpirun = find_mpirun(options, job_settings, ranks, plan.contenders, say);
  return measurement;
}

// More ranks measure scaling, without peers.
AllReduceJob prepare_scaling(const AllReduceOptions& options, const JobSettings& job_settings,
                             int ranks, const std::vector<std::string>& contenders,
                             const Say& say) {
  AllReduceJob measurement = prepare(options, job_settings, ranks, contenders, say);
  std::erase_if(measurement.plan.sizes,
                [](uint64_t bytes) { return bytes != kLargeBytes && bytes != kSmallBytes; });
  return measurement;
}

// Makes `horon run` start the job on the hosts, through mpirun if the contenders need it.
AllReduceJob put_on_hosts(AllReduceJob measurement, const AllReduceOptions& options) {
  RankJob& job = measurement.job;
  const auto hosts = split(options.hosts, ',');
  const auto count = static_cast<int>(hosts.size());
  require(count > 1, "--hosts: at least two, e.g. --hosts a,b");
  require(job.ranks % count == 0,
          fmt::format("--ranks {} is not a multiple of {} hosts", job.ranks, count));
  std::vector<std::string> slots;
  for (const std::string& host : hosts)
    slots.push_back(fmt::format("{}:{}", host, job.ranks / count));
  job.run_flags = {"-H", fmt::format("{}", fmt::join(slots, ","))};
  for (std::string& flag : split(options.run_flags, ' '))
    if (!flag.empty()) job.run_flags.push_back(std::move(flag));
  if (!std::exchange(job.mpirun, {}).empty())
    job.run_flags.insert(job.run_flags.end(),
                         {"--mpi", "--mpi-args", "--mca pml ob1 --mca btl self,tcp"});
  measurement.plan.is_one_host = false;
  measurement.plan.shows_progress = false;  // `horon run` shows lines when they end
  return measurement;
}

std::vector<AllReduceJob> prepare_between_hosts(const AllReduceOptions& options,
                                                const JobSettings& job_settings,
                                                const std::vector<int>& ranks, const Say& say) {
  std::vector<AllReduceJob> jobs;
  const auto hosts = static_cast<int>(split(options.hosts, ',').size());
  for (const int count : ranks) {
    if (jobs.empty() || !options.backends.empty()) {
      jobs.push_back(put_on_hosts(
          prepare(options, job_settings, count, contenders_of(options), say), options));
      continue;
    }
    jobs.push_back(put_on_hosts(
        prepare_scaling(options, job_settings, count, {"floor", "hier"}, say), options));
    jobs.push_back(prepare_scaling(options, job_settings, count / hosts, {"floor", "shm"}, say));
  }
  return jobs;
}

}  // namespace

void check_names(const AllReduceOptions& options) {
  parse_dtype(options.dtype);
  require(options.mpi == "openmpi" || options.mpi == "mpich",
          fmt::format("unknown MPI '{}'; openmpi or mpich", options.mpi));
  const auto contenders = contenders_of(options);
  const bool wants_mpi_tcp =
      std::any_of(contenders.begin(), contenders.end(),
                  [](const auto& name) { return needs_mpi(name) && is_over_tcp(name); });
  require(options.mpi == "openmpi" || options.backends.empty() || !wants_mpi_tcp,
          "mpi over tcp is measured with Open MPI; MPICH cannot be told to use it within a host");
}

std::vector<int> ranks_of(const AllReduceOptions& options) {
  std::vector<int> ranks;
  const auto hosts = static_cast<int>(split(options.hosts, ',').size());
  if (options.ranks.empty() && !options.hosts.empty()) return {hosts, 4 * hosts};
  for (const std::string& one : split(options.ranks.empty() ? "2,4" : options.ranks, ','))
    ranks.push_back(static_cast<int>(parse_integer(one, "--ranks", 1, 64)));
  return ranks;
}

std::vector<std::string> contenders_of(const AllReduceOptions& options) {
  if (options.backends.empty() && !options.hosts.empty())
    return {"floor", "tcp", "tcp_plain", "gloo", "mpi_tcp", "raw_mpi_tcp"};
  if (options.backends.empty())
    return {"floor", "shm", "shm_plain", "exact",    "shm_f16", "shm_bf16",  "shm_max",
            "gloo",  "mpi", "raw_mpi",   "raw_gloo", "tcp",     "tcp_plain", "raw_mpi_tcp"};
  std::vector<std::string> chosen = {"floor"};
  const auto known = contender_names();
  for (const std::string& name : split(options.backends, ',')) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string close = nearest(name, known);
      throw UsageError(fmt::format("unknown backend '{}'{}; there are: {}", name,
                                   close.empty() ? "" : fmt::format(", did you mean '{}'?", close),
                                   fmt::join(known, ", ")));
    }
    if (std::find(chosen.begin(), chosen.end(), name) == chosen.end()) chosen.push_back(name);
  }
  return chosen;
}

std::vector<AllReduceJob> prepare_all_reduce(const AllReduceOptions& options,
                                             const JobSettings& job_settings,
                                             const std::vector<int>& ranks, const Say& say) {
  std::vector<AllReduceJob> jobs;
  if (!options.hosts.empty()) return prepare_between_hosts(options, job_settings, ranks, say);
  for (const int count : ranks) {
    const bool is_first = jobs.empty();
    if (!is_first && options.backends.empty()) {
      jobs.push_back(prepare_scaling(options, job_settings, count, {"floor", "shm", "exact"}, say));
      continue;
    }
    const auto add = [&](std::vector<std::string> contenders) {
      jobs.push_back(prepare(options, job_settings, count, std::move(contenders), say));
    };
    const auto within = contenders_of_job(options, false);
    auto over_tcp = contenders_of_job(options, true);
    if (options.mpi != "openmpi") std::erase_if(over_tcp, needs_mpi);
    if (within.size() > 1 || over_tcp.size() == 1) add(within);
    if (over_tcp.size() > 1) add(over_tcp);
  }
  return jobs;
}

AllReduceJob small_all_reduce(int ranks) {
  AllReduceJob what;
  what.plan.contenders = {"floor", "shm", "exact"};
  what.plan.sizes = {4, 4U << 10, 64U << 10, 1U << 20, 32U << 20};
  what.plan.seconds = 0.5;
  what.job.ranks = ranks;
  what.job.arguments = {"bench", "rank"};
  return what;
}

std::vector<BenchPoint> run_all_reduce(const AllReduceJob& what) {
  if (what.plan.sizes.empty()) return {};
  return nlohmann::json::parse(run_ranks(what.job, nlohmann::json(what.plan).dump()))
      .get<std::vector<BenchPoint>>();
}

nlohmann::json summarise(const std::vector<BenchPoint>& points) {
  const auto median = [&](int ranks, uint64_t bytes, const std::string& contender) {
    for (const BenchPoint& point : points) {
      if (point.ranks == ranks && point.bytes == bytes && point.contender == contender)
        return point.median_us;
    }
    return 0.0;
  };
  nlohmann::json summary = nlohmann::json::object();
  const auto ratio = [&](const char* key, double above, double below) {
    if (above > 0 && below > 0) summary[key] = above / below;
  };
  const double shm = median(2, kLargeBytes, "shm");
  ratio("shm_over_mpi_100MB", median(2, kLargeBytes, "raw_mpi"), shm);
  ratio("shm_over_gloo_100MB", median(2, kLargeBytes, "raw_gloo"), shm);
  ratio("shm_share_of_floor_100MB", median(2, kLargeBytes, "floor"), shm);
  ratio("shm_p50_us_64KB", median(2, kSmallBytes, "shm"), 1.0);
  ratio("four_over_two_ranks_100MB", median(4, kLargeBytes, "shm"), shm);
  ratio("exact_over_fast_100MB", median(2, kLargeBytes, "exact"), shm);
  ratio("f16_share_of_f32_100MB", shm, median(2, kLargeBytes, "shm_f16"));
  ratio("bf16_share_of_f32_100MB", shm, median(2, kLargeBytes, "shm_bf16"));
  ratio("max_share_of_sum_100MB", shm, median(2, kLargeBytes, "shm_max"));
  for (const auto& [key, bytes] : {std::pair<const char*, uint64_t>{"tcp_over_mpi_tcp_4B", 4},
                                   {"tcp_over_mpi_tcp_64KB", kSmallBytes},
                                   {"tcp_over_mpi_tcp_100MB", kLargeBytes}})
    ratio(key, median(2, bytes, "tcp_plain"), median(2, bytes, "raw_mpi_tcp"));
  ratio("private_over_plain_100MB", median(2, kLargeBytes, "tcp"),
        median(2, kLargeBytes, "tcp_plain"));
  // Two levels against their parts: between two hosts, and inside each, before and after.
  ratio("hier_over_parts_100MB", median(8, kLargeBytes, "hier"),
        median(2, kLargeBytes, "tcp") + 2 * median(4, kLargeBytes, "shm"));
  return summary;
}

std::string draw(const std::vector<BenchPoint>& points) {
  report::Plot plot{.title = fmt::format("all-reduce, {} ranks", points.front().ranks),
                    .x_label = "bytes a rank",
                    .y_label = "microseconds (median)",
                    .series = {},
                    .x_ticks = {}};
  for (const BenchPoint& point : points) {
    if (point.ranks != points.front().ranks) continue;
    auto found =
        std::find_if(plot.series.begin(), plot.series.end(),
                     [&](const report::Series& series) { return series.name == point.contender; });
    if (found == plot.series.end()) found = plot.series.insert(found, {point.contender, {}});
    const auto bytes = static_cast<double>(point.bytes);
    const bool is_drawn =
        std::any_of(found->points.begin(), found->points.end(),
                    [&](const auto& other) { return other.first == bytes; });  // floor, by job
    if (!is_drawn) found->points.emplace_back(bytes, point.median_us);
    const std::string label = format_bytes(point.bytes);
    const bool is_new = plot.x_ticks.empty() || plot.x_ticks.back().second != label;
    if (is_new && point.bytes != kLargeBytes)
      plot.x_ticks.emplace_back(static_cast<double>(point.bytes), label);
  }
  return report::draw_svg(plot);
}

}  // namespace horon::bench
