// The callbacks that control a run (initial state, learning rate, end, averages), and the list of
// all.
#include <array>
#include <utility>

#include "horon/train/callback.h"

namespace horon::train {
namespace {

class BroadcastState final : public Callback {
 public:
  void on_begin(Moment& moment) override {
    broadcast_state(moment.world, moment.state, moment.trainee);
  }
};

class FollowSchedule final : public Callback {
 public:
  explicit FollowSchedule(Schedule schedule) : schedule_(std::move(schedule)) {}
  void on_step_begin(Moment& moment) override { moment.rate = schedule_.at(moment.epoch); }

 private:
  Schedule schedule_;
};

class StopAtStep final : public Callback {
 public:
  explicit StopAtStep(uint64_t step) : step_(step) {}
  void on_step_begin(Moment& moment) override {
    if (moment.state.step + 1 >= step_) moment.stop();
  }

 private:
  uint64_t step_;
};

// The names are rank 0's; a rank that has no number of a name adds nothing.
class AverageMetrics final : public Callback {
 public:
  void on_step_end(Moment& moment) override {
    if (!moment.ends_epoch && !moment.is_last) return;
    std::string names;
    for (const auto& [name, metric] : moment.metrics) names += name + '\n';
    moment.averages.clear();
    names = broadcast_text(moment.world, names);  // rank 0 decides which metrics are averaged
    for (size_t at = 0; at < names.size();) {
      const size_t end = names.find('\n', at);
      const std::string name = names.substr(at, end - at);
      const Moment::Metric& mine = moment.metrics[name];
      std::array<double, 2> sums = {mine.sum, mine.count};
      moment.world.all_reduce(view_of(sums), {.name = "metric " + name});
      moment.averages[name] = sums[1] == 0 ? 0.0 : sums[0] / sums[1];
      at = end + 1;
    }
    moment.metrics.clear();
  }
};

}  // namespace

std::unique_ptr<Callback> make_broadcast_state() { return std::make_unique<BroadcastState>(); }
std::unique_ptr<Callback> make_follow_schedule(Schedule schedule) {
  return std::make_unique<FollowSchedule>(std::move(schedule));
}
std::unique_ptr<Callback> make_stop_at_step(uint64_t step) {
  return std::make_unique<StopAtStep>(step);
}
std::unique_ptr<Callback> make_average_metrics() { return std::make_unique<AverageMetrics>(); }

Callbacks standard_callbacks(const TrainConfig& config, const Schedule& schedule, Callbacks own) {
  Callbacks all;
  all.push_back(make_broadcast_state());
  all.push_back(make_follow_schedule(schedule));
  all.push_back(make_nan_guard(config.nan_policy));
  all.push_back(make_check_replicas());
  for (auto& one : own) all.push_back(std::move(one));
  all.push_back(make_average_metrics());
  all.push_back(make_save_checkpoints());
  if (config.keep_best) all.push_back(make_keep_best());
  all.push_back(make_report());
  return all;
}

}  // namespace horon::train
