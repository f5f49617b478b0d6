// All-reduce between threads (no arguments), or between processes that share a folder:
//   all_reduce RANK SIZE FOLDER     started once for each rank
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "horon/base/error.h"
#include "horon/comm/bootstrap.h"

namespace {

void average_ranks(horon::Communicator& comm) {
  const horon::OwnedBuffer gradient = comm.allocate(1000, horon::DType::kF32);
  for (float& value : gradient.as<float>()) value = static_cast<float>(comm.rank());
  comm.all_reduce(gradient.view(), {.op = horon::ReduceOp::kAverage, .name = "fc.weight"});
  if (comm.rank() == 0)
    std::printf("average of ranks over %s: %g\n", comm.backend().c_str(), gradient.as<float>()[0]);
}

void run(int argc, char** argv) {
  if (argc == 4) {
    const auto comm = horon::make_communicator({.rank = std::atoi(argv[1]),
                                                .size = std::atoi(argv[2]),
                                                .store = horon::make_file_store(argv[3]),
                                                .knobs = {},
                                                .device = nullptr});
    return average_ranks(*comm);
  }
  auto world = horon::make_local_world(4);
  std::vector<std::jthread> ranks;
  for (auto& comm : world) ranks.emplace_back([&one = *comm] { average_ranks(one); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const horon::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
