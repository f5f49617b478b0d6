#include <horon/comm/bootstrap.h>

#include <cstdio>

int main() {
  const auto world = horon::make_local_world(1);
  std::vector<float> data = {1, 2, 3};
  world[0]->all_reduce(horon::view_of(data), {.op = horon::ReduceOp::kAverage});
  std::printf("%g %g %g on %d rank\n", data[0], data[1], data[2], world[0]->size());
  return data[2] == 3.0F ? 0 : 1;
}
