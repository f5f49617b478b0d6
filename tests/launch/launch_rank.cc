// One rank of a launch test, however it was started.
//   sum              joins, all-reduces rank + 1, prints "sum S of N over BACKEND"
//   until FILE       all-reduces again and again until FILE is there; prints the longest pause
//   late FILE        rank 1 joins only when FILE is there; then as sum
//   large            all-reduces 2 MB, checks them, prints "large over BACKEND"
//   leave            rank 1 lets go of the others, says why a second later and ends with 3; they
//   wait for it mpi              calls MPI itself, too: both must see the same world
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>
#include <vector>

#include "horon/base/error.h"
#include "horon/comm/enter_job.h"
#ifdef HORON_TEST_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

namespace {

using horon::Communicator;

float all_reduce_once(Communicator& comm) {
  std::array<float, 1> value = {static_cast<float>(comm.rank() + 1)};
  comm.all_reduce(horon::view_of(value), {.op = horon::ReduceOp::kSum, .name = "x"});
  return value[0];
}

void wait_for_file(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void reduce_large(Communicator& comm) {
  std::vector<float> data(500'000, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(horon::view_of(data), {.op = horon::ReduceOp::kSum, .name = "large"});
  const auto ranks = static_cast<float>(comm.size());
  if (data != std::vector<float>(data.size(), ranks * (ranks + 1) / 2))
    throw std::runtime_error("wrong sums");
  std::cout << fmt::format("large over {}\n", comm.backend()) << std::flush;
}

void print_sum(Communicator& comm, const std::string& how) {
  const float sum = all_reduce_once(comm);
  std::cout << fmt::format("sum {} of {} over {} ({})\n", sum, comm.size(), comm.backend(), how)
            << std::flush;
}

// Rank 0 sees the file and tells the others, so that all do the same number of rounds.
void run_until(Communicator& comm, const std::string& path) {
  double longest = 0;
  int64_t rounds = 0;
  std::cout << "running\n" << std::flush;
  for (bool stop = false; !stop; ++rounds) {
    const horon::Stopwatch watch;
    std::array<float, 1> value = {comm.rank() == 0 && std::filesystem::exists(path) ? 1.0F : 0.0F};
    comm.all_reduce(horon::view_of(value), {.op = horon::ReduceOp::kSum, .name = "stop"});
    longest = std::max(longest, watch.seconds());
    stop = value[0] > 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::cout << fmt::format("rounds {} longest {:.3f}\n", rounds, longest) << std::flush;
}

// As a program that unwinds after an error of its own, and takes its time.
int leave(std::unique_ptr<Communicator> comm) {
  all_reduce_once(*comm);
  if (comm->rank() != 1) {
    all_reduce_once(*comm);
    return 0;
  }
  comm.reset();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::cerr << "the real reason\n";
  return 3;
}

#ifdef HORON_TEST_MPI
void check_mpi(Communicator& comm) {
  int rank = -1;
  int size = -1;
  int one = 1;
  int sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank != comm.rank() || size != comm.size() || sum != size)
    throw std::runtime_error("two worlds");
  print_sum(comm, fmt::format("mpi rank {} of {}", rank, size));
}
#endif

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "sum";
#ifdef HORON_TEST_MPI
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
#endif
  const horon::JobSettings job_settings = horon::JobSettings::resolve({}, horon::process_env, "");
  const char* rank = std::getenv("HORON_RANK");
  if (mode == "late" && rank != nullptr && std::string(rank) == "1") {
    std::cout << "waiting\n" << std::flush;
    wait_for_file(argv[2]);
  }
  const horon::Stopwatch watch;
  const horon::Membership world = horon::enter_job(job_settings);
  {
    auto comm = horon::make_communicator(horon::bootstrap_info(world, job_settings));
    if (mode == "leave") return leave(std::move(comm));
    if (mode == "until") {
      run_until(*comm, argv[2]);
    } else if (mode == "large") {
      reduce_large(*comm);
    } else if (mode == "topology") {
      const horon::Topology& at = comm->topology();
      std::cout << fmt::format("rank {} of {}, local {} of {}, cross {} of {}\n", at.rank, at.size,
                               at.local_rank, at.local_size, at.cross_rank, at.cross_size)
                << std::flush;
#ifdef HORON_TEST_MPI
    } else if (mode == "mpi") {
      check_mpi(*comm);
#endif
    } else {
      print_sum(*comm, world.description);
    }
    if (mode == "late") std::cout << fmt::format("joined in {:.3f}\n", watch.seconds());
  }
#ifdef HORON_TEST_MPI
  MPI_Finalize();
#endif
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const horon::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
