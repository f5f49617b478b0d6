// Callbacks that notice when something is wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/train/callback.h"

namespace horon::train {
namespace {

class NanGuard final : public Callback {
 public:
  explicit NanGuard(NanPolicy policy) : policy_(policy) {}
  // All ranks decide alike: they see the same reduced numbers.
  void on_gradients(Moment& moment) override {
    if (moment.sums.flaws.empty()) {
      in_a_row_ = 0;
      return;
    }
    const std::string what = fmt::format("step {}: not finite on {}", moment.state.step + 1,
                                         fmt::join(moment.sums.flaws, "; on "));
    if (policy_ == NanPolicy::kAbort)
      throw Error(what + "; --nan_policy skip-step skips such steps", ExitCode::kNonFinite);
    if (++in_a_row_ >= kMostInARow)
      throw Error(fmt::format("{}, as on the {} steps before it", what, kMostInARow - 1),
                  ExitCode::kNonFinite);
    moment.skips = true;
    moment.screen.say(what + ", the step is skipped");
  }

 private:
  static constexpr int kMostInARow = 20;
  NanPolicy policy_;
  int in_a_row_ = 0;
};

// All replicas must hold the same bits. One number a step; the tensors are told apart only when it
// differs.
class CheckReplicas final : public Callback {
 public:
  explicit CheckReplicas(uint64_t steps) : steps_(steps) {}
  void on_step_end(Moment& moment) override {
    if (moment.state.step % steps_ != 0) return;
    std::vector<int64_t> mine;
    uint32_t whole = 0;
    for (const ModelArray& one : moment.trainee.replica.parameters()) {
      const uint32_t crc = crc_of(one, moment.trainee.accelerator);
      mine.push_back(crc);
      whole = crc32c(&crc, sizeof(crc), whole);
    }
    std::vector<int64_t> digest = {whole};
    if (differing(moment, digest).empty()) return;
    const auto found = differing(moment, mine);
    throw Error(fmt::format("step {}: the weights of {} differ from those of rank 0, first in '{}'",
                            moment.state.step, name_ranks(found.begin()->second),
                            moment.trainee.replica.parameters()[found.begin()->first].name),
                ExitCode::kMismatch);
  }

 private:
  static uint32_t crc_of(const ModelArray& array, const Accelerator& accelerator) {
    if (accelerator.is_cpu()) return crc32c(array.data, array.count * sizeof(float));
    std::vector<float> values(array.count);
    accelerator.math->copy(values.data(), array.data, array.count * sizeof(float));
    return crc32c(values.data(), array.count * sizeof(float));
  }
  // Finds the tensors that differ from rank 0's, and the ranks.
  static std::map<size_t, std::vector<int>> differing(const Moment& moment,
                                                      std::vector<int64_t>& mine) {
    const Gathered all = moment.world.all_gather(view_of(mine), {.name = "replica check"});
    const auto numbers = all.data.as<int64_t>();
    std::map<size_t, std::vector<int>> found;
    for (size_t rank = 1; rank < static_cast<size_t>(moment.ranks); ++rank) {
      for (size_t i = 0; i < mine.size(); ++i) {
        if (numbers[rank * mine.size() + i] != numbers[i])
          found[i].push_back(static_cast<int>(rank));
      }
    }
    return found;
  }
  uint64_t steps_;
};

}  // namespace

std::unique_ptr<Callback> make_nan_guard(NanPolicy policy) {
  return std::make_unique<NanGuard>(policy);
}
std::unique_ptr<Callback> make_check_replicas(uint64_t steps) {
  return std::make_unique<CheckReplicas>(steps);
}

}  // namespace horon::train
