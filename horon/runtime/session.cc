#include "horon/runtime/session.h"

#include <array>

#include "horon/comm/join.h"

namespace horon {

Session::Session() {
  const Knobs knobs = Knobs::resolve({}, process_env, "");
  const World world = join_world(knobs);
  RuntimeOptions options = runtime_options(knobs);
  options.store = world.store;
  options.stall.store_rank = world.store_rank;
  runtime_ = std::make_shared<Runtime>(make_communicator(world, knobs), options);
}

Session::Session(std::unique_ptr<Communicator> world)
    : runtime_(std::make_shared<Runtime>(std::move(world))) {}

double Session::sum(double value) const {
  std::array<double, 1> values = {value};
  world().all_reduce(view_of(values), {.name = "session sum"});
  return values[0];
}

}  // namespace horon
