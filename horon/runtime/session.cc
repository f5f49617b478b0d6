#include "horon/runtime/session.h"

#include <fmt/format.h>

#include <array>

#include "horon/base/error.h"

namespace horon {
namespace {

std::shared_ptr<StopOnSignal> take_signals(bool wanted) {
  return wanted ? std::make_shared<StopOnSignal>(true) : nullptr;
}

}  // namespace

Session::Session(const SessionOptions& options)
    : knobs_(options.knobs),
      signals_(take_signals(options.takes_signals)),
      place_(join_world(options.knobs)),
      codecs_(options.codecs) {
  if (!place_.store) place_.store = make_memory_store();  // a process alone
  if (options.connects) connect(options.device);
}

Session::Session(const World& place, int generation, const SessionOptions& options)
    : knobs_(options.knobs),
      signals_(take_signals(options.takes_signals)),
      place_(place),
      generation_(generation),
      codecs_(options.codecs) {
  if (!place_.store && place_.size == 1) place_.store = make_memory_store();
  if (options.connects) connect(options.device);
}

Session::Session(std::unique_ptr<Communicator> world, const RuntimeOptions& options) {
  place_.rank = world->rank();
  place_.size = world->size();
  place_.store = options.store;
  place_.store_rank = options.stall.store_rank;
  runtime_ = std::make_unique<Runtime>(std::move(world), options);
}

Session::~Session() = default;

std::unique_ptr<Communicator> Session::make_world(
    const std::shared_ptr<DeviceRuntime>& device) const {
  BootstrapInfo info = bootstrap_info(place_, knobs_);
  info.device = device;
  // Ranks of another generation are numbered anew, and so is what they have made.
  info.name = generation_ == 0 ? name_ : fmt::format("{}/generation/{}", name_, generation_);
  return make_communicator(info);
}

RuntimeOptions Session::runtime_settings(const Communicator& world) const {
  RuntimeOptions options = runtime_options(knobs_);
  options.store = world.store();
  options.codecs = codecs_;
  if (generation_ > 0 && !options.timeline.empty())
    options.timeline += fmt::format(".generation{}", generation_);
  options.stall.store_rank = place_.store_rank;
  return options;
}

void Session::connect(std::shared_ptr<DeviceRuntime> device) {
  require(!runtime_, "this session is connected already");
  device_ = std::move(device);
  auto world = make_world(device_);
  const RuntimeOptions settings = runtime_settings(*world);
  runtime_ = std::make_unique<Runtime>(std::move(world), settings);
  if (signals_) dumps_ = signals_->on_user_signal([this] { runtime_->dump_last(); });
}

Runtime& Session::runtime() const {
  require(runtime_ != nullptr, "this session is not connected; call connect() first");
  return *runtime_;
}

std::unique_ptr<Session> Session::replica(int index, int of) {
  require(index >= 0 && index < of, fmt::format("replica {} of {} makes no sense", index, of));
  World place = place_;
  place.rank = place_.rank * of + index;
  place.size = place_.size * of;
  SessionOptions options;
  options.knobs = knobs_;
  options.connects = false;
  options.codecs = codecs_;
  auto session = std::make_unique<Session>(place, generation_, options);
  session->signals_ = signals_;
  session->name_ = fmt::format("replicas/{}", of);
  return session;
}

double Session::sum(double value) const {
  std::array<double, 1> values = {value};
  world().all_reduce(view_of(values), {.name = "session sum"});
  return values[0];
}

BucketMemory Session::renew(const World& next, int generation) {
  require(generation > generation_,
          fmt::format("generation {} does not come after {}", generation, generation_));
  Runtime& runtime = this->runtime();
  place_ = next;
  generation_ = generation;
  auto world = make_world(device_);
  const RuntimeOptions settings = runtime_settings(*world);
  return runtime.rebind(std::move(world), settings);
}

}  // namespace horon
