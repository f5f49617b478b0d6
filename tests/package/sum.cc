// In a library of the user's own, as programs grow.
#include <horon/comm/join.h>

float sum_of_ranks(int& size) {
  const horon::Knobs settings = horon::Knobs::resolve({}, horon::process_env, "");
  const horon::World world = horon::join_world(settings);
  const auto comm = horon::make_communicator(world, settings);
  std::vector<float> data = {static_cast<float>(comm->rank() + 1)};
  comm->all_reduce(horon::view_of(data), {.name = "ranks"});
  size = comm->size();
  return data[0];
}
