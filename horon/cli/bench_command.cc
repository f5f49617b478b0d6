// horon bench, horon demo: flags in, what was measured out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/bench/all_reduce.h"
#include "horon/bench/all_reduce_rank.h"
#include "horon/bench/input.h"
#include "horon/bench/launch.h"
#include "horon/bench/machine.h"
#include "horon/bench/runtime.h"
#include "horon/bench/train.h"
#include "horon/cli/commands.h"
#include "horon/cli/output.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/start/backends.h"
#include "horon/device/dtype.h"
#include "horon/train/open.h"

namespace horon::cli {
namespace {

// Prints a line during the measurement.
void say(const std::string& line) { std::cout << line << "\n" << std::flush; }

void keep(const std::string& path, const bench::Results& measured) {
  if (!path.empty()) write_file(path, bench::make_record(measured).dump(1) + "\n");
}

void refuse_meeting_place(const Globals& globals) {
  for (const char* name : {"rendezvous", "secret_file", "insecure"})
    require(!globals.flags.contains(name),
            fmt::format("{}: not read here: these ranks meet in a temporary folder",
                        job_setting_flag(name)));
}

// Errors that every rank of `bench runtime` would report, reported once.
void check_runtime_ranks(const Globals& globals) {
  refuse_meeting_place(globals);
  const JobSettings settings = globals.job_settings();
  const std::string& backend = settings.text("backend");
  const bool crosses_by_mpi = backend == "hier" && settings.text("cross_backend") == "mpi";
  require(
      backend != "mpi" && !crosses_by_mpi,
      fmt::format("--{} mpi: mpirun must start the ranks, and `horon bench runtime` starts them "
                  "itself",
                  backend == "mpi" ? "backend" : "cross-backend"));
  require(backend != "self" && backend != "local",
          fmt::format("--backend {}: these ranks are several processes", backend));
  const std::string lacks = check_algorithms(backend, settings);
  require(lacks.empty(), lacks);
}

// Ranks that all-reduce and nothing else read few of the settings; flags of others would do
// nothing.
void refuse_unread(const Globals& globals, const std::vector<std::string>& contenders) {
  require(!globals.flags.contains("backend"),
          fmt::format("--backend: not read here; use `horon bench allreduce --backends {}`",
                      fmt::join(bench::contender_names(), ",")));
  require(!globals.flags.contains("cross_backend") ||
              std::find(contenders.begin(), contenders.end(), "hier") != contenders.end(),
          "--cross-backend: only hier reads it; use `horon bench allreduce --backends hier`");
  refuse_meeting_place(globals);
  for (const char* name :
       {"bucket_bytes", "first_bucket_bytes", "chunk_bytes", "stall_warning_time",
        "stall_shutdown_time", "autotune_file", "timeline", "flight_folder"})
    require(
        !globals.flags.contains(name),
        fmt::format(
            "{}: not read here; it affects named operations, which `horon bench runtime` measures",
            job_setting_flag(name)));
}

void print_table(const std::vector<bench::BenchPoint>& points) {
  std::cout << fmt::format("{:>5} {:>9} {:<10} {:>12} {:>12} {:>9} {:>9}\n", "ranks", "size",
                           "method", "median us", "p95 us", "GB/s", "of floor");
  uint64_t last = 0;
  for (const bench::BenchPoint& point : points) {
    if (last != 0 && last != point.bytes) std::cout << "\n";
    last = point.bytes;
    std::cout << fmt::format("{:>5} {:>9} {:<10} {:>12.1f} {:>12.1f} {:>9.2f} {:>8.0f}%\n",
                             point.ranks, format_bytes(point.bytes), point.contender,
                             point.median_us, point.p95_us, point.gb_per_s,
                             point.share_of_floor * 100);
  }
}

struct AllReduceFlags : bench::AllReduceOptions {
  std::string json;
  std::string svg;
};

void run_all_reduce(const AllReduceFlags& flags, const Globals& globals) {
  const JobSettings job_settings = globals.job_settings();
  globals.export_to_ranks();
  bench::check_names(flags);
  check_writable(flags.json);
  check_writable(flags.svg);
  const std::vector<int> ranks = bench::ranks_of(flags);
  refuse_unread(globals, bench::contenders_of(flags));
  const auto jobs = bench::prepare_all_reduce(
      flags, job_settings, ranks, [](const std::string& line) { std::cerr << line << "\n"; });
  say(bench::describe(bench::this_machine()));  // from here on errors are not the user's
  std::vector<bench::BenchPoint> points;
  for (const bench::AllReduceJob& job : jobs)
    for (const bench::BenchPoint& point : bench::run_all_reduce(job)) points.push_back(point);
  require(!points.empty(), "nothing to measure: no sizes or ranks");
  print_table(points);
  const nlohmann::json summary = bench::summarise(points);
  print_summary(summary);
  keep(flags.json, {points, summary});
  if (!flags.svg.empty()) write_file(flags.svg, bench::draw(points));
}

void add_all_reduce(CLI::App& bench, Globals& globals) {
  auto* allreduce = bench.add_subcommand("allreduce",
                                         "All-reduce by size and backend, against MPI_Allreduce, "
                                         "gloo::allreduce and the memory-traffic limit");
  auto flags = std::make_shared<AllReduceFlags>();
  allreduce->add_flag("--quick", flags->quick, "a few sizes, under 40 s");
  allreduce->add_option("--json", flags->json, "write the record to this file");
  allreduce->add_option("--svg", flags->svg, "write a plot to this file");
  allreduce->add_option("--sizes", flags->sizes, "bytes per rank, e.g. 4,64KB,100MB");
  allreduce->add_option(
      "--backends", flags->backends,
      fmt::format("what to measure: {}", fmt::join(bench::contender_names(), ", ")));
  allreduce->add_option(
      "--ranks", flags->ranks,
      "numbers of ranks; with the first one all backends are measured, with the others shm; "
      "default: 2,4, between hosts 1 and 4 on each");
  allreduce->add_option("--dtype", flags->dtype, "element type")->capture_default_str();
  allreduce->add_option("--mpi", flags->mpi, "openmpi or mpich")->capture_default_str();
  allreduce->add_option("--hosts", flags->hosts,
                        "measure between these hosts, e.g. a,b, with `horon run`; over tcp, gloo "
                        "and MPI's TCP");
  allreduce
      ->add_option("--run-flags", flags->run_flags,
                   "flags of `horon run` for these hosts, e.g. '--ssh-config FILE'")
      ->needs("--hosts");
  add_job_setting_flags(*allreduce, globals);
  allreduce->callback([flags, &globals] { run_all_reduce(*flags, globals); });
}

void add_launch(CLI::App& bench, Globals& globals) {
  auto* launch = bench.add_subcommand(
      "launch",
      "Time from `horon run` to the first all-reduce, against mpirun; CPU time of an idle job");
  struct Flags : bench::LaunchOptions {
    std::string json;
  };
  auto flags = std::make_shared<Flags>();
  launch->add_flag("--quick", flags->quick, "fewer rounds, under 20 s");
  launch->add_option("--rounds", flags->rounds, "number of starts with 8 ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  launch->add_option("--json", flags->json, "write the record to this file");
  launch->add_option("--mpi", flags->mpi, "openmpi or mpich")
      ->check(CLI::IsMember({"openmpi", "mpich"}))
      ->capture_default_str();
  add_job_setting_flags(*launch, globals);
  launch->callback([flags, &globals] {
    const JobSettings job_settings = globals.job_settings();
    globals.export_to_ranks();
    check_writable(flags->json);
    const auto measured = bench::run_launch(*flags, part_folders(job_settings.text("parts")), say);
    print_summary(measured.summary);
    keep(flags->json, measured);
  });
}

void add_runtime(CLI::App& bench, Globals& globals) {
  auto* runtime = bench.add_subcommand("runtime",
                                       "Named operations: latency, and the gradients of ResNet-50 "
                                       "in buckets against one all-reduce");
  struct Flags {
    bool quick = false;
    std::string json;
  };
  auto flags = std::make_shared<Flags>();
  runtime->add_flag("--quick", flags->quick, "fewer rounds");
  runtime->add_option("--json", flags->json, "write the record to this file");
  add_job_setting_flags(*runtime, globals);
  runtime->callback([flags, &globals] {
    check_runtime_ranks(globals);
    globals.export_to_ranks();
    check_writable(flags->json);
    const auto measured = bench::run_runtime(flags->quick);
    print_summary(measured.summary);
    keep(flags->json, measured);
  });
}

void add_input(CLI::App& bench) {
  auto* input = bench.add_subcommand(
      "input", "JPEG decoding, TFRecord reading and small images, against other programs");
  struct Flags : bench::InputOptions {
    std::string json;
  };
  auto flags = std::make_shared<Flags>();
  input->add_flag("--quick", flags->quick, "fewer rounds");
  input->add_option("--json", flags->json, "write the record to this file");
  input->add_option(
      "--peers", flags->peers,
      "a Python with torch and tensorflow, to measure them too (`make bench-peers` installs one)");
  input->add_option("--peer-script", flags->peer_script)->capture_default_str();
  input->callback([flags] {
    bench::check_peers(flags->peers, flags->peer_script);
    check_writable(flags->json);
    const auto measured = bench::run_input(*flags);
    print_summary(measured.summary);
    keep(flags->json, measured);
  });
}

void add_train(CLI::App& bench, Globals& globals) {
  auto* train = bench.add_subcommand(
      "train",
      "Training steps: on two ranks, against a minimal LibTorch loop, with real input, exact");
  struct Flags : bench::TrainOptions {
    std::string json;
  };
  auto flags = std::make_shared<Flags>();
  train->add_flag("--quick", flags->quick, "fewer rounds");
  train
      ->add_option("--device", flags->device,
                   "cpu, or cuda: steps on a GPU against a minimal LibTorch loop")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  train->add_option("--json", flags->json, "write the record to this file");
  train->add_option("--peers", flags->peers,
                    "a Python with torch, to measure DDP too (`make bench-peers` installs one)");
  train->add_option("--peer-script", flags->peer_script)->capture_default_str();
  add_job_setting_flags(*train, globals);
  train->callback([flags, &globals] {
    globals.export_to_ranks();
    bench::check_peers(flags->peers, flags->peer_script);
    train::open_trainer(part_folders(
        globals.job_settings().text("parts")));  // reports a missing part once, before ranks start
    check_writable(flags->json);
    keep(flags->json, bench::run_train(*flags, say));
  });
}

// What the above start as ranks.
void add_ranks(CLI::App& bench, Globals& globals) {
  using RankBody = void (*)(const bench::RankOptions&);
  const auto add = [&](const char* name, RankBody body) {
    auto* rank = bench.add_subcommand(name, "")->group("");
    auto options = std::make_shared<bench::RankOptions>();
    rank->add_option("--rank", options->rank);
    rank->add_option("--size", options->size);
    rank->add_option("--store", options->store);
    rank->add_option("--plan", options->plan);
    rank->callback([options, body] { body(*options); });
  };
  add("rank", bench::run_all_reduce_rank);
  add("runtime-rank", bench::run_runtime_rank);

  auto* first = bench.add_subcommand("first", "")->group("");
  auto mpi = std::make_shared<std::string>();
  first->add_option("--mpi", *mpi);
  first->callback([mpi] { bench::run_first(*mpi, say); });

  auto* train = bench.add_subcommand("train-rank", "")->group("");
  auto plan = std::make_shared<std::string>();
  train->add_option("plan", *plan)->required();
  train->callback([plan, &globals] {
    globals.exit_code =
        bench::run_train_rank(*plan, part_folders(globals.job_settings().text("parts")));
  });
}

}  // namespace

void add_bench_command(CLI::App& app, Globals& globals) {
  auto* bench = app.add_subcommand("bench", "Measures performance, with peers in the same run");
  bench->require_subcommand(1);
  add_all_reduce(*bench, globals);
  add_launch(*bench, globals);
  add_runtime(*bench, globals);
  add_input(*bench);
  add_train(*bench, globals);
  add_ranks(*bench, globals);
}

void add_demo_command(CLI::App& app, Globals& globals) {
  auto* demo = app.add_subcommand(
      "demo", "Starts ranks on this host, runs an all-reduce and prints its time");
  auto ranks = std::make_shared<int>(2);
  demo->add_option("-n,--np", *ranks, "number of ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  add_job_setting_flags(*demo, globals);
  demo->callback([ranks, &globals] {
    // A wrong setting is an error here, not in the ranks.
    const std::string lacks = check_algorithms("shm", globals.job_settings());
    require(lacks.empty(), lacks);
    globals.export_to_ranks();
    const bench::AllReduceJob job = bench::small_all_reduce(*ranks);
    refuse_unread(globals, job.plan.contenders);
    std::cout << fmt::format(
        "{} ranks all-reduce over shared memory (floor: each adds 1 to its own memory):\n\n",
        *ranks);
    print_table(bench::run_all_reduce(job));
    std::cout << "\nMore: horon bench allreduce, horon info, horon --help\n";
  });
}

}  // namespace horon::cli
