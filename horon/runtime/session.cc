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
    : job_settings_(options.job_settings),
      signals_(take_signals(options.takes_signals)),
      membership_(enter_job(options.job_settings)),
      codecs_(options.codecs) {
  if (!membership_.store) membership_.store = make_memory_store();  // a single process
  if (options.connects) connect(options.device);
}

Session::Session(const Membership& membership, int generation, const SessionOptions& options)
    : job_settings_(options.job_settings),
      signals_(take_signals(options.takes_signals)),
      membership_(membership),
      generation_(generation),
      codecs_(options.codecs) {
  if (!membership_.store && membership_.size == 1) membership_.store = make_memory_store();
  if (options.connects) connect(options.device);
}

Session::Session(std::unique_ptr<Communicator> world, const RuntimeOptions& options) {
  membership_.rank = world->rank();
  membership_.size = world->size();
  membership_.store = options.store;
  membership_.store_rank = options.stall.store_rank;
  runtime_ = std::make_unique<Runtime>(std::move(world), options);
}

Session::~Session() = default;

std::unique_ptr<Communicator> Session::make_world(
    const std::shared_ptr<DeviceRuntime>& device) const {
  BootstrapInfo info = bootstrap_info(membership_, job_settings_);
  info.device = device;
  // Each generation has its own rank and name numbers, so its communicators need other names.
  info.name = generation_ == 0 ? name_ : fmt::format("{}/generation/{}", name_, generation_);
  return make_communicator(info);
}

RuntimeOptions Session::runtime_settings(const Communicator& world) const {
  RuntimeOptions options = runtime_options(job_settings_);
  options.store = world.store();
  options.codecs = codecs_;
  if (generation_ > 0 && !options.timeline.empty())
    options.timeline += fmt::format(".generation{}", generation_);
  options.stall.store_rank = membership_.store_rank;
  return options;
}

void Session::connect(std::shared_ptr<DeviceRuntime> device) {
  require(!runtime_, "this session is connected already");
  device_ = std::move(device);
  auto world = make_world(device_);
  const RuntimeOptions settings = runtime_settings(*world);
  runtime_ = std::make_unique<Runtime>(std::move(world), settings);
  arm_dumps();
}

void Session::arm_dumps() {
  if (signals_) dumps_ = signals_->on_user_signal([this] { runtime_->dump_last(); });
}

Runtime& Session::runtime() const {
  require(runtime_ != nullptr, "this session is not connected; call connect() first");
  return *runtime_;
}

std::unique_ptr<Session> Session::replica(int index, int of) {
  require(index >= 0 && index < of, fmt::format("replica {} of {} makes no sense", index, of));
  Membership membership = membership_;
  membership.rank = membership_.rank * of + index;
  membership.size = membership_.size * of;
  SessionOptions options;
  options.job_settings = job_settings_;
  options.connects = false;
  options.codecs = codecs_;
  auto session = std::make_unique<Session>(membership, generation_, options);
  session->signals_ = signals_;
  session->name_ = fmt::format("replicas/{}", of);
  return session;
}

double Session::sum(double value) const {
  std::array<double, 1> values = {value};
  world().all_reduce(view_of(values), {.name = "session sum"});
  return values[0];
}

BucketMemory Session::renew(const Membership& next, int generation) {
  require(generation > generation_,
          fmt::format("generation {} must be greater than {}", generation, generation_));
  Runtime& runtime = this->runtime();
  membership_ = next;
  generation_ = generation;
  auto world = make_world(device_);
  const RuntimeOptions settings = runtime_settings(*world);
  dumps_.reset();  // what is written meanwhile would be half of each
  BucketMemory memory = runtime.rebind(std::move(world), settings);
  arm_dumps();
  return memory;
}

}  // namespace horon
