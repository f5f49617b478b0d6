// One step: in which order it tells those who share gradients, and what is left of it when it
// fails.
#include "horon/train/step.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horon/base/error.h"
#include "horon/comm/bootstrap.h"
#include "horon/data/dataset.h"
#include "horon/data/open_dataset.h"
#include "horon/train/optimizer.h"

namespace horon::train {
namespace {

constexpr size_t kBatch = 8;

struct Pictures {
  std::vector<float> pixels = std::vector<float>(kBatch * 3072);
  std::vector<int64_t> labels;
  std::vector<uint64_t> numbers;
  Pictures() {
    for (size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = std::sin(static_cast<float>(i % 977) * 0.37F);
    for (size_t i = 0; i < kBatch; ++i) {
      labels.push_back(static_cast<int64_t>(i % 10));
      numbers.push_back(i);
    }
  }
  Shard shard(uint64_t number, size_t first, size_t count) const {
    return {number,
            {pixels.data() + first * 3072, std::span(labels).subspan(first, count),
             std::span(numbers).subspan(first, count), 0}};
  }
};

// Writes down what it is told; fails where it is asked to.
class Recorder final : public GradientSync {
 public:
  explicit Recorder(Replica& replica, std::string fails = "")
      : replica_(replica), fails_(std::move(fails)) {}
  const std::vector<Slice>& slices() const override { return slices_; }
  void begin(const StepPlan& plan) override {
    replica_.keep_statistics();
    note("begin " + std::to_string(plan.passes.size()));
  }
  void begin_shard(size_t pass, const Shard& shard) override {
    note("shard " + std::to_string(pass) + "/" + std::to_string(shard.number));
  }
  void need(size_t) override { note_once("need"); }
  void ready(size_t i, const float* gradient) override {
    gradients[i] = gradient[0];
    note_once("ready");
  }
  void end_shard(const Score& score) override {
    note("score of " + std::to_string(static_cast<int>(score.count)));
  }
  void end_pass(size_t pass) override { note("end " + std::to_string(pass)); }
  StepSums finish(const Wishes&) override {
    note("finish");
    return {};
  }
  void abandon() override {
    replica_.restore_statistics();
    note("abandon");
  }
  void update(Optimizer&, double) override { note("update"); }

  std::vector<std::string> calls;
  std::map<size_t, float> gradients;  // their first values
  size_t needs = 0;
  size_t readies = 0;

 private:
  void note_once(const std::string& what) {
    ++(what == "need" ? needs : readies);
    if (calls.back() != what) note(what);
  }
  void note(const std::string& what) {
    calls.push_back(what);
    if (what == fails_) throw PeerLostError("test: a peer is gone", std::vector<int>{1});
  }
  Replica& replica_;
  std::string fails_;
  std::vector<Slice> slices_;
};

using Calls = std::vector<std::string>;

TEST(ComputeGradients, TellsTheSyncEachPartOfTheStepInOrder) {
  Replica replica(TrainConfig{}, {}, {});
  Recorder sync(replica);
  const Pictures batch;
  const StepPlan plan{{{{batch.shard(4, 0, 4), batch.shard(5, 4, 4)}, 16},
                       {{}, 16},  // a batch of which this rank has no part
                       {{batch.shard(7, 2, 3)}, 16}}};
  compute_gradients(replica, sync, plan);
  EXPECT_EQ(sync.calls, (Calls{"begin 3", "shard 0/4", "need", "ready", "score of 4", "shard 0/5",
                               "need", "ready", "score of 4", "end 0", "end 1", "shard 2/7", "need",
                               "ready", "score of 3", "end 2", "finish"}));
  EXPECT_EQ(sync.needs, 3 * replica.parameters().size());
  EXPECT_EQ(sync.readies, 3 * replica.parameters().size());
}

TEST(ComputeGradients, LeavesNothingOfAStepThatFails) {
  const Pictures batch;
  Replica whole(TrainConfig{}, {}, {});
  Recorder wanted(whole);
  compute_gradients(whole, wanted, {{{{batch.shard(0, 0, 8)}, 8}}});
  for (const std::string where : {"need", "ready", "score of 8", "end 0", "finish"}) {
    Replica replica(TrainConfig{}, {}, {});
    const auto statistics = replica.read_statistics();
    Recorder sync(replica, where);
    EXPECT_THROW(compute_gradients(replica, sync, {{{{batch.shard(0, 0, 8)}, 8}}}), PeerLostError);
    EXPECT_EQ(sync.calls.back(), "abandon") << where;
    EXPECT_EQ(replica.read_statistics(), statistics) << where;
    Recorder again(replica);  // and the next step is one like any other
    compute_gradients(replica, again, {{{{batch.shard(0, 0, 8)}, 8}}});
    EXPECT_EQ(again.calls.back(), "finish") << where;
    EXPECT_EQ(again.gradients, wanted.gradients) << where;
    EXPECT_EQ(replica.read_statistics(), whole.read_statistics()) << where;
  }
}

// Fails where it is asked to, once; everything else goes to the sync inside.
class FailsOnce final : public GradientSync {
 public:
  FailsOnce(GradientSync& inner, std::string where) : inner_(inner), where_(std::move(where)) {}
  const std::vector<Slice>& slices() const override { return inner_.slices(); }
  void begin(const StepPlan& plan) override { inner_.begin(plan); }
  void begin_shard(size_t pass, const Shard& shard) override {
    inner_.begin_shard(pass, shard);
    fail_at("begin_shard");
  }
  void ready(size_t i, const float* gradient) override {
    inner_.ready(i, gradient);
    if (i == 0) fail_at("ready");
  }
  void end_shard(const Score& score) override {
    inner_.end_shard(score);
    fail_at("end_shard");
  }
  void end_pass(size_t pass) override {
    inner_.end_pass(pass);
    fail_at("end_pass");
  }
  StepSums finish(const Wishes& wishes) override {
    const StepSums sums = inner_.finish(wishes);
    fail_at("finish");
    return sums;
  }
  void abandon() override {
    inner_.abandon();
    if (where_ == "abandon") throw Error("abandon fails, too");
  }

 private:
  void fail_at(const std::string& where) {
    if (where == where_ || where_ == "abandon") {
      if (where_ != "abandon") where_.clear();
      throw Error("test: the step fails");
    }
  }
  GradientSync& inner_;
  std::string where_;
};

std::vector<float> gradients_of(const GradientSync& sync) {
  std::vector<float> all;
  for (const Slice& slice : sync.slices())
    all.insert(all.end(), slice.gradient, slice.gradient + slice.count);
  return all;
}

std::unique_ptr<GradientSync> make(bool exact, Runtime& runtime, Replica& replica) {
  return exact ? make_exact_sync(runtime, replica, static_cast<uint64_t>(runtime.size()))
               : make_fast_sync(runtime, replica);
}

TEST(ComputeGradients, TheSameSyncRepeatsAStepThatFailed) {
  const Pictures batch;
  const StepPlan plan{{{{batch.shard(0, 0, 8)}, 8}}};
  for (const bool exact : {false, true}) {
    Runtime runtime(std::move(make_local_world(1)[0]));
    Replica whole(TrainConfig{}, {}, {});
    const auto wanted = make(exact, runtime, whole);
    compute_gradients(whole, *wanted, plan);
    for (const std::string where : {"begin_shard", "ready", "end_shard", "end_pass", "finish"}) {
      Replica replica(TrainConfig{}, {}, {});
      Runtime own(std::move(make_local_world(1)[0]));
      const auto sync = make(exact, own, replica);
      FailsOnce fails(*sync, where);
      EXPECT_THROW(compute_gradients(replica, fails, plan), Error) << where;
      compute_gradients(replica, fails, plan);
      EXPECT_EQ(gradients_of(*sync) == gradients_of(*wanted), true) << where;
      EXPECT_EQ(replica.read_statistics(), whole.read_statistics()) << where;
      EXPECT_EQ(sync->mended, wanted->mended) << where;
    }
  }
}

// Some of its gradients may be with the other rank already: with the fast sync those of a shard,
// with the exact one those of a pass, whose sum has the header of every other pass.
TEST(ComputeGradients, OneOfSeveralRanksDoesNotRepeatAStepAlone) {
  const Pictures batch;
  for (const bool exact : {false, true}) {
    auto world = make_local_world(2);
    std::barrier both(2);
    const auto run = [&](int rank) {
      Runtime runtime(std::move(world[static_cast<size_t>(rank)]));
      Replica replica(TrainConfig{}, {}, {});
      const auto sync = make(exact, runtime, replica);
      const auto number = static_cast<uint64_t>(rank);
      const StepPlan::Pass pass{{batch.shard(number, 4 * number, 4)}, 8};
      const StepPlan plan{std::vector<StepPlan::Pass>(exact ? 2 : 1, pass)};
      FailsOnce fails(*sync, exact ? "end_pass" : "end_shard");
      if (rank == 0) {
        EXPECT_THROW(compute_gradients(replica, fails, plan), Error);
        EXPECT_THROW(compute_gradients(replica, fails, plan), Error);
      } else if (exact) {  // takes part in the first pass
        EXPECT_THROW(compute_gradients(replica, fails, plan), Error);
      }
      both.arrive_and_wait();
    };
    const std::jthread other([&] { run(1); });
    run(0);
  }
}

TEST(ComputeGradients, AnAbandonThatFailsHidesNothing) {
  const Pictures batch;
  Replica replica(TrainConfig{}, {}, {});
  Runtime runtime(std::move(make_local_world(1)[0]));
  const auto sync = make_fast_sync(runtime, replica);
  FailsOnce fails(*sync, "abandon");
  try {
    compute_gradients(replica, fails, {{{{batch.shard(0, 0, 8)}, 8}}});
    FAIL() << "it did not fail";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "test: the step fails");
  }
}

// A run of one rank around one step.
class RankAlone {
 public:
  RankAlone()
      : runtime_(std::move(make_local_world(1)[0])),
        replica_(config_, {}, {}),
        sync_(make_sync(config_, runtime_, replica_)),
        optimizer_(make_optimizer(config_, sync_->slices())) {
    DatasetRequest request;
    request.name = "shapes10";
    request.samples = 64;
    PipelineOptions options;
    options.dataset = open_dataset(request);
    options.recipe = find_recipe("cifar", true, 32, 32);
    options.batch = batch_options_.batch = 16;
    batch_options_.samples = options.dataset->size();
    length_ = {0, 100, 1, batches_in_epoch(batch_options_), 16};
    pipeline_.emplace(options);
  }
  TrainStep step_with(const Callbacks& callbacks, GradientSync& sync) {
    return TrainStep({config_,
                      replica_,
                      *optimizer_,
                      sync,
                      callbacks,
                      *pipeline_,
                      state_,
                      length_,
                      batch_options_,
                      {},
                      {}});
  }
  void run(TrainStep& step) {
    const Trainee trainee{replica_, *optimizer_, {}};
    Screen screen(false);
    Moment moment{config_, 0, 1, runtime_.world(), trainee, state_, screen, 100};
    moment.rate = 0.1;
    step.run(moment);
  }
  void run(const Callbacks& callbacks, GradientSync& sync) {
    TrainStep step = step_with(callbacks, sync);
    run(step);
  }
  std::string weights() const {
    std::string all;
    for (const auto& [name, tensor] : replica_.state()) all += tensor.bytes;
    return all;
  }

  TrainConfig config_;
  Runtime runtime_;
  Replica replica_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
  RunState state_;
  BatchOptions batch_options_;
  RunLength length_;
  std::optional<Pipeline> pipeline_;
};

class OneRank : public testing::Test, protected RankAlone {};

struct OnGradients final : Callback {
  explicit OnGradients(std::function<void(Moment&)> does) : does_(std::move(does)) {}
  void on_gradients(Moment& moment) override { does_(moment); }
  std::function<void(Moment&)> does_;
};

Callbacks with(std::function<void(Moment&)> does) {
  Callbacks all;
  all.push_back(std::make_unique<OnGradients>(std::move(does)));
  return all;
}

TEST_F(OneRank, AStepMovesWeightsStatisticsAndPosition) {
  const std::string before = weights();
  run({}, *sync_);
  EXPECT_NE(weights() == before, true);
  EXPECT_EQ(state_.step, 1U);
  EXPECT_EQ(state_.position.next, 16U);
}

TEST_F(OneRank, ASkippedStepCountsButChangesNeitherWeightsNorStatistics) {
  const std::string before = weights();
  struct Skips final : Callback {
    explicit Skips(std::function<void()> ends) : ends_(std::move(ends)) {}
    void on_gradients(Moment& moment) override { moment.skips = true; }
    void on_step_end(Moment&) override { ends_(); }
    std::function<void()> ends_;
  };
  bool seen = false;
  Callbacks callbacks;
  callbacks.push_back(std::make_unique<Skips>([&] { seen = weights() == before; }));
  run(std::move(callbacks), *sync_);
  EXPECT_EQ(seen, true);  // callbacks at its end see what was before, too
  EXPECT_EQ(weights() == before, true);
  EXPECT_EQ(state_.step, 1U);
  EXPECT_EQ(state_.position.next, 16U);
}

TEST_F(OneRank, AStepThatFailsBeforeItsUpdateLeavesTheStateOfBefore) {
  const std::string before = weights();
  EXPECT_THROW(run(with([](Moment&) { throw Error("no"); }), *sync_), Error);
  Recorder fails(replica_, "finish");
  EXPECT_THROW(run({}, fails), PeerLostError);
  EXPECT_EQ(weights() == before, true);
  EXPECT_EQ(state_.step, 0U);
  EXPECT_EQ(state_.position, Position{});
}

TEST_F(OneRank, AStepThatIsRepeatedUsesTheSameBatches) {
  RankAlone other;
  other.run({}, *other.sync_);
  bool fails = true;
  const Callbacks callbacks = with([&](Moment&) {
    if (std::exchange(fails, false)) throw Error("test: once");
  });
  TrainStep step = step_with(callbacks, *sync_);
  EXPECT_THROW(run(step), Error);
  run(step);
  EXPECT_EQ(weights() == other.weights(), true);
  EXPECT_EQ(state_.position.next, 16U);
  run(step);
  EXPECT_EQ(state_.position.next, 32U);
}

TEST_F(OneRank, TheSyncMayOwnTheUpdate) {
  const std::string parameters = replica_.state().at("fc.weight").bytes;
  Recorder owner(replica_);
  run({}, owner);
  EXPECT_EQ(owner.calls.back(), "update");
  EXPECT_EQ(replica_.state().at("fc.weight").bytes == parameters, true);  // nobody else updates
}

}  // namespace
}  // namespace horon::train
