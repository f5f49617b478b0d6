// One rank of the contract suite: started N times by the tests, or by mpirun.
#include <fmt/format.h>

#include <iostream>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/mpi/mpi_part.h"
#include "tests/contract/suite.h"
#include "tests/support/rank_args.h"

namespace {

std::vector<horon::contract::Check> checks_named(const std::string& name) {
  if (name == "operations") return horon::contract::operation_checks();
  if (name == "runtime") return horon::contract::runtime_checks();
  if (name == "huge") return horon::contract::huge_checks();
  return horon::contract::behaviour_checks();
}

int run(const horon::testing_support::RankArgs& args) {
  using namespace horon;
  BootstrapInfo info = args.bootstrap();
  if (!mpi_flavour_of_environment().empty()) {
    const MpiIdentity world =
        mpi_identity({.part_folders = part_folders(info.job_settings.text("parts"))});
    info.rank = world.rank;
    info.size = world.size;
    const int hosts = args.number("hosts", 0);
    if (hosts > 0)
      info.job_settings.set("host_id", "host" + std::to_string(info.rank % hosts), "test");
  }
  if (args.text("device") == "cuda")
    info.device = open_cuda_runtime(part_folders(info.job_settings.text("parts")));
  const auto comm = make_communicator(info);
  contract::Context context{*comm, info.device};
  const auto failures = contract::run(checks_named(args.text("checks")), context);
  for (const std::string& failure : failures)
    std::cerr << "rank " << info.rank << ": " << failure << "\n";
  if (failures.empty() && info.rank == 0) {
    std::cout << fmt::format("{} ranks over {}: ok\n", comm->size(), comm->backend());
  }
  return failures.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(horon::testing_support::RankArgs(argc, argv));
  } catch (const horon::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
