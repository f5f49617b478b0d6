#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/base/version.h"
#include "horon/cli/bench_input.h"
#include "horon/cli/bench_launch.h"
#include "horon/cli/bench_plan.h"
#include "horon/cli/bench_rank.h"
#include "horon/cli/bench_runtime.h"
#include "horon/cli/bench_train.h"
#include "horon/cli/commands.h"
#include "horon/cli/machine.h"
#include "horon/cli/ranks.h"
#include "horon/cli/record.h"
#include "horon/cli/svg_plot.h"
#include "horon/comm/bootstrap.h"
#include "horon/device/dtype.h"

namespace horon::cli {
namespace {

struct BenchOptions {
  bool quick = false;
  std::string json;
  std::string svg;
  std::string sizes;
  std::string backends;
  std::string ranks = "2,4";
  std::string dtype = "f32";
  std::string mpi = "openmpi";
};

constexpr uint64_t kLargeBytes = 100U << 20;  // the "100MB" of the summary
constexpr uint64_t kSmallBytes = 64U << 10;   // and its "64KB"

std::vector<uint64_t> parse_sizes(const BenchOptions& options) {
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

std::vector<std::string> parse_contenders(const BenchOptions& options) {
  if (options.backends.empty())
    return {"floor",   "shm",  "shm_plain", "exact",   "shm_f16", "shm_bf16",
            "shm_max", "gloo", "mpi",       "raw_mpi", "raw_gloo"};
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

// The raw peers are called with floats; halves stand beside floats of the same bytes.
bool needs_floats(const std::string& contender) {
  return contender.rfind("raw_", 0) == 0 || contender == "shm_f16" || contender == "shm_bf16";
}

bool needs_mpi(const std::string& contender) {
  return contender == "mpi" || contender == "raw_mpi";
}

// Contenders that cannot run here are left out with a word, or an error if they were asked for.
std::vector<std::string> find_mpirun(const BenchOptions& options, const Knobs& knobs, int ranks,
                                     std::vector<std::string>& contenders) {
  if (std::none_of(contenders.begin(), contenders.end(), needs_mpi)) return {};
  std::string why;
  const auto command = mpirun_command(options.mpi, ranks, part_folders(knobs.text("parts")), why);
  if (!command.empty()) return command;
  require(options.backends.empty(), "mpi was asked for: " + why);
  std::cerr << "without mpi: " << why << "\n";
  std::erase_if(contenders, needs_mpi);
  return {};
}

// The backend whose algorithms a contender goes by; empty: it is none of ours.
std::string backend_of(const std::string& contender) {
  if (contender == "floor" || contender.rfind("raw_", 0) == 0) return "";
  return contender == "exact" || contender.rfind("shm", 0) == 0 ? "shm" : contender;
}

// The same for those whose backend does not have what the setting `algorithm` asks for.
void drop_without_algorithm(const BenchOptions& options, const Knobs& knobs,
                            std::vector<std::string>& contenders) {
  for (const std::string& name : std::vector<std::string>(contenders)) {
    const std::string why = check_algorithms(backend_of(name), knobs);
    if (why.empty()) continue;
    require(options.backends.empty(), why);
    std::cerr << fmt::format("without {}: {}\n", name, why);
    std::erase(contenders, name);
  }
}

struct Measurement {
  RankJob job;
  BenchPlan plan;
};

Measurement prepare(const BenchOptions& options, const Knobs& knobs, int ranks, bool is_first) {
  Measurement measurement;
  BenchPlan& plan = measurement.plan;
  plan.contenders = parse_contenders(options);
  plan.sizes = parse_sizes(options);
  plan.dtype = options.dtype;
  plan.seconds = options.quick ? 5.0 : 8.0;
  plan.max_rounds = options.quick ? 25 : 60;
  plan.shows_progress = isatty(STDERR_FILENO) != 0;
  if (parse_dtype(options.dtype) != DType::kF32) std::erase_if(plan.contenders, needs_floats);
  if (!is_first && options.backends.empty()) {  // more ranks: how we scale, not whom we beat
    plan.contenders = {"floor", "shm", "exact"};
    std::erase_if(plan.sizes,
                  [](uint64_t bytes) { return bytes != kLargeBytes && bytes != kSmallBytes; });
  }
  drop_without_algorithm(options, knobs, plan.contenders);
  measurement.job.ranks = ranks;
  measurement.job.arguments = {"bench", "rank"};
  measurement.job.mpirun = find_mpirun(options, knobs, ranks, plan.contenders);
  return measurement;
}

std::vector<BenchPoint> measure(const Measurement& what) {
  if (what.plan.sizes.empty()) return {};
  return nlohmann::json::parse(run_ranks(what.job, nlohmann::json(what.plan).dump()))
      .get<std::vector<BenchPoint>>();
}

// Ranks that all-reduce and nothing else read few of the settings; flags of others would do
// nothing.
void refuse_unread(const Globals& globals, const std::vector<std::string>& contenders) {
  require(!globals.flags.contains("backend"),
          fmt::format("--backend: what is measured here is chosen by `horon bench allreduce "
                      "--backends {}`",
                      fmt::join(contender_names(), ",")));
  require(!globals.flags.contains("cross_backend") ||
              std::find(contenders.begin(), contenders.end(), "hier") != contenders.end(),
          "--cross-backend: only hier reads it; say `horon bench allreduce --backends hier`");
  for (const char* name : {"rendezvous", "secret_file", "insecure"})
    require(!globals.flags.contains(name),
            fmt::format("{}: these ranks meet in a folder of their own", knob_flag(name)));
  for (const char* name :
       {"bucket_bytes", "first_bucket_bytes", "chunk_bytes", "stall_warning_time",
        "stall_shutdown_time", "autotune_file", "timeline", "flight_folder"})
    require(!globals.flags.contains(name),
            fmt::format("{}: nothing reads it here; it is for named operations, which `horon bench "
                        "runtime` measures",
                        knob_flag(name)));
}

void print_table(const std::vector<BenchPoint>& points) {
  std::cout << fmt::format("{:>5} {:>9} {:<10} {:>12} {:>12} {:>9} {:>9}\n", "ranks", "size", "way",
                           "median us", "p95 us", "GB/s", "of floor");
  uint64_t last = 0;
  for (const BenchPoint& point : points) {
    if (last != 0 && last != point.bytes) std::cout << "\n";
    last = point.bytes;
    std::cout << fmt::format("{:>5} {:>9} {:<10} {:>12.1f} {:>12.1f} {:>9.2f} {:>8.0f}%\n",
                             point.ranks, format_bytes(point.bytes), point.contender,
                             point.median_us, point.p95_us, point.gb_per_s,
                             point.share_of_floor * 100);
  }
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
  return summary;
}

std::string plot_of(const std::vector<BenchPoint>& points) {
  Plot plot{.title = fmt::format("all-reduce, {} ranks on one host", points.front().ranks),
            .x_label = "bytes a rank",
            .y_label = "microseconds (median)",
            .series = {},
            .x_ticks = {}};
  for (const BenchPoint& point : points) {
    if (point.ranks != points.front().ranks) continue;
    auto found = std::find_if(plot.series.begin(), plot.series.end(),
                              [&](const Series& series) { return series.name == point.contender; });
    if (found == plot.series.end()) found = plot.series.insert(found, {point.contender, {}});
    found->points.emplace_back(static_cast<double>(point.bytes), point.median_us);
    const std::string label = format_bytes(point.bytes);
    const bool is_new = plot.x_ticks.empty() || plot.x_ticks.back().second != label;
    if (is_new && point.bytes != kLargeBytes)
      plot.x_ticks.emplace_back(static_cast<double>(point.bytes), label);
  }
  return draw_svg(plot);
}

void run_allreduce(const BenchOptions& options, const Globals& globals) {
  const Knobs knobs = globals.knobs();
  globals.export_to_ranks();
  parse_dtype(options.dtype);
  require(options.mpi == "openmpi" || options.mpi == "mpich",
          fmt::format("unknown MPI '{}'; openmpi or mpich", options.mpi));
  check_writable(options.json);
  check_writable(options.svg);
  std::vector<int> ranks;
  for (const std::string& one : split(options.ranks, ',')) {
    ranks.push_back(static_cast<int>(parse_integer(one, "--ranks", 1, 64)));
  }
  refuse_unread(globals, parse_contenders(options));
  std::vector<Measurement> measurements;
  for (const int count : ranks)
    measurements.push_back(prepare(options, knobs, count, measurements.empty()));
  std::cout << describe(this_machine()) << "\n" << std::flush;  // from here on nobody erred
  std::vector<BenchPoint> points;
  for (const Measurement& what : measurements) {
    for (const BenchPoint& point : measure(what)) points.push_back(point);
  }
  require(!points.empty(), "nothing to measure: no sizes or ranks");
  print_table(points);
  const nlohmann::json summary = summarise(points);
  print_summary(summary);
  if (!options.json.empty()) write_file(options.json, make_record(points, summary).dump(1) + "\n");
  if (!options.svg.empty()) write_file(options.svg, plot_of(points));
}

}  // namespace

void add_bench_command(CLI::App& app, Globals& globals) {
  auto* bench = app.add_subcommand("bench", "Measures, with peers in the same run");
  bench->require_subcommand(1);
  auto* allreduce = bench->add_subcommand("allreduce",
                                          "All-reduce by size and backend, against MPI_Allreduce, "
                                          "gloo::allreduce and the memory's floor");
  auto options = std::make_shared<BenchOptions>();
  allreduce->add_flag("--quick", options->quick, "a few sizes, under 40 s");
  allreduce->add_option("--json", options->json, "write the record to this file");
  allreduce->add_option("--svg", options->svg, "draw it into this file");
  allreduce->add_option("--sizes", options->sizes, "bytes a rank, e.g. 4,64KB,100MB");
  allreduce->add_option("--backends", options->backends,
                        fmt::format("what to measure: {}", fmt::join(contender_names(), ", ")));
  allreduce
      ->add_option("--ranks", options->ranks, "numbers of ranks; all backends run with the first")
      ->capture_default_str();
  allreduce->add_option("--dtype", options->dtype, "element type")->capture_default_str();
  allreduce->add_option("--mpi", options->mpi, "openmpi or mpich")->capture_default_str();
  add_knob_flags(*allreduce, globals);
  allreduce->callback([options, &globals] { run_allreduce(*options, globals); });

  add_bench_launch(*bench, globals);
  add_bench_runtime(*bench, globals);
  add_bench_input(*bench);
  add_bench_train(*bench, globals);

  auto* rank = bench->add_subcommand("rank", "")->group("");  // started by the above
  auto rank_options = std::make_shared<BenchRankOptions>();
  rank->add_option("--rank", rank_options->rank);
  rank->add_option("--size", rank_options->size);
  rank->add_option("--store", rank_options->store)->required();
  rank->callback([rank_options] { run_bench_rank(*rank_options); });
}

void add_demo_command(CLI::App& app, Globals& globals) {
  auto* demo = app.add_subcommand(
      "demo", "Starts ranks on this machine that all-reduce, and shows what it took");
  auto ranks = std::make_shared<int>(2);
  demo->add_option("-n,--np", *ranks, "number of ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  add_knob_flags(*demo, globals);
  demo->callback([ranks, &globals] {
    // A wrong setting is an error here, not in the ranks.
    const std::string lacks = check_algorithms("shm", globals.knobs());
    require(lacks.empty(), lacks);
    globals.export_to_ranks();
    BenchPlan plan;
    plan.contenders = {"floor", "shm", "exact"};
    refuse_unread(globals, plan.contenders);
    plan.sizes = {4, 4U << 10, 64U << 10, 1U << 20, 32U << 20};
    plan.seconds = 0.5;
    RankJob job;
    job.ranks = *ranks;
    job.arguments = {"bench", "rank"};
    std::cout << fmt::format(
        "{} ranks all-reduce over shared memory (floor: each adds 1 to its own memory):\n\n",
        *ranks);
    print_table(nlohmann::json::parse(run_ranks(job, nlohmann::json(plan).dump()))
                    .get<std::vector<BenchPoint>>());
    std::cout << "\nMore: horon bench allreduce, horon info, horon --help\n";
  });
}

}  // namespace horon::cli
