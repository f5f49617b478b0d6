// All-reduce between the ranks of a job, however it was started:
//   horon run -np 4 example_all_reduce       mpirun -np 4 example_all_reduce
// Started alone it creates four ranks as threads.
#include <cstdio>
#include <string>
#include <thread>

#include "horon/base/error.h"
#include "horon/runtime/session.h"

namespace {

void average_ranks(horon::Communicator& comm) {
  const horon::OwnedBuffer gradient = comm.allocate(1000, horon::DType::kF32);
  for (float& value : gradient.as<float>()) value = static_cast<float>(comm.rank());
  comm.all_reduce(gradient.view(), {.op = horon::ReduceOp::kAverage, .name = "fc.weight"});
  if (comm.rank() == 0)
    std::printf("average of ranks over %s: %g\n", comm.backend().c_str(), gradient.as<float>()[0]);
}

void run() {
  const horon::Session session;
  if (session.size() > 1) return average_ranks(session.world());
  auto threads = horon::make_local_world(4);
  std::vector<std::jthread> ranks;
  for (auto& comm : threads) ranks.emplace_back([&one = *comm] { average_ranks(one); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const bool asked = std::string(argv[1]) == "--help";
    std::fputs("usage: all_reduce, alone or under `horon run -np N`\n", asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  try {
    run();
    return 0;
  } catch (const horon::Error& error) {
    std::fprintf(stderr, "all_reduce: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
