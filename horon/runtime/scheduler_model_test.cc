// Several schedulers against each other, in one thread: what all ranks run, in whatever order each
// of them submits.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "horon/runtime/scheduler.h"

namespace horon {
namespace {

using Kind = Action::Kind;

Clock::time_point at(int64_t milliseconds) {
  return Clock::time_point() + std::chrono::hours(1) + Milliseconds(milliseconds);
}

std::string names_of(const Transfer& transfer) {
  std::string names;
  for (const Submission& item : transfer.items) names += item.spec.name;
  return names;
}

struct Rank {
  Scheduler scheduler{Plan({1, 800}), false};
  uint64_t submissions = 0;
  void submit(char name, Clock::time_point now) {
    Submission item;
    item.spec.name = std::string(1, name);
    item.spec.count = 100;
    item.number = ++submissions;
    scheduler.submit(std::move(item), now);
  }
};

// A collective happens when all ranks have come to one; until then those that came wait, while
// their other threads submit.
struct Model {
  std::vector<Rank> ranks;
  std::vector<std::optional<Action>> arrived;
  std::vector<std::vector<std::string>> ran;  // transfers of each rank
  int agreements = 0;

  explicit Model(size_t size) : ranks(size), arrived(size), ran(size) {}

  void act(size_t i, Clock::time_point now) {
    if (arrived[i]) return;
    Action action = ranks[i].scheduler.next(now);
    if (action.kind != Kind::kNothing) arrived[i] = std::move(action);
    const auto has_come = [](const auto& one) { return one.has_value(); };
    if (std::all_of(arrived.begin(), arrived.end(), has_come)) meet(now);
  }

  void meet(Clock::time_point now) {
    const auto goes = [](const auto& one) { return one->kind == Kind::kTransfer; };
    const bool all_go = std::all_of(arrived.begin(), arrived.end(), goes);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (all_go) {
        end(i, arrived[i]->transfer, now);
      } else if (goes(arrived[i])) {
        ranks[i].scheduler.put_back(std::move(arrived[i]->transfer));
      }
      arrived[i].reset();
    }
    if (!all_go) agree(now);
  }

  void agree(Clock::time_point now) {
    ++agreements;
    std::vector<PendingReport> reports;
    std::vector<int> numbers;
    for (Rank& rank : ranks) {
      numbers.push_back(static_cast<int>(numbers.size()));
      reports.push_back(unpack_report(pack_report(rank.scheduler.report())));
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      Scheduler& scheduler = ranks[i].scheduler;
      const Decision decision = decide(reports, numbers, scheduler.plan());
      EXPECT_TRUE(decision.wrong.empty());
      for (const AgreedTransfer& agreed : split_decision(decision, scheduler.plan()))
        end(i, scheduler.take(agreed), now);
      scheduler.learn(decision, now);
    }
  }

  void end(size_t i, const Transfer& transfer, Clock::time_point now) {
    ran[i].push_back(names_of(transfer));
    ranks[i].scheduler.finish(transfer, now);
  }

  bool is_idle() const {
    return std::none_of(ranks.begin(), ranks.end(),
                        [](const Rank& rank) { return rank.scheduler.oldest().has_value(); });
  }
};

TEST(SchedulerModel, RanksRunTheSameInTheSameOrderWhateverTheirOrders) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const size_t size = 1 + seed % 4;
    Model model(size);
    int64_t now = 0;
    for (int step = 0; step < 12; ++step) {
      const bool drops = seed / 4 % 2 == 1 && step % 3 == 2;
      const std::string names = drops ? "abdefgh" : "abcdefgh";
      std::vector<std::string> left(size, names);
      for (std::string& order : left) std::shuffle(order.begin(), order.end(), random);
      const size_t before = model.ran[0].size();
      const int agreements = model.agreements;
      const auto submitted = [](const std::string& order) { return order.empty(); };
      for (int turns = 0; !std::all_of(left.begin(), left.end(), submitted) || !model.is_idle();
           ++turns) {
        ASSERT_LT(turns, 100'000) << "nothing moves: seed " << seed << ", step " << step;
        const size_t i = random() % size;
        Rank& rank = model.ranks[i];
        if (!left[i].empty() && random() % 2 == 0) {
          rank.submit(left[i].back(), at(now));
          left[i].pop_back();
          if (left[i].empty()) rank.scheduler.want(rank.submissions, true);
        } else {
          model.act(i, at(now));
        }
        if (random() % 4 == 0) ++now;
      }
      std::string all;
      for (size_t i = before; i < model.ran[0].size(); ++i) all += model.ran[0][i];
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, names) << "seed " << seed << ", step " << step;
      for (size_t i = 1; i < size; ++i) ASSERT_EQ(model.ran[i], model.ran[0]) << "seed " << seed;
      if (seed / 4 % 2 == 0 && step >= 3) {  // a step that repeats is not talked about
        EXPECT_EQ(model.agreements, agreements) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace horon
