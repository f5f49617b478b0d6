// A loop of one's own on many ranks. Ranks are threads here.
#include <array>
#include <atomic>
#include <cmath>
#include <latch>

#include "horon/train/gradient_buckets.h"
#include "tests/train/on_ranks.h"

namespace horon::train {
namespace {

struct Net : torch::nn::Module {
  torch::nn::Linear first{8, 16};
  torch::nn::Linear second{16, 3};
  torch::nn::Linear unused{2, 2};
  Net() {
    register_module("first", first);
    register_module("second", second);
    register_module("unused", unused);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
};

std::shared_ptr<Net> seeded_net(uint64_t seed) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  return std::make_shared<Net>();
}

std::pair<torch::Tensor, torch::Tensor> samples_of(int64_t step, int64_t count) {
  const auto x =
      torch::sin(torch::arange(count * 8, torch::kFloat32) * 0.7 + step).view({count, 8});
  return {x, torch::arange(count, torch::kInt64).remainder(3)};
}

template <typename OptimizerType>
void step_once(Net& net, OptimizerType& optimizer, int64_t step, int64_t first, int64_t count) {
  auto [x, y] = samples_of(step, 12);
  torch::nn::functional::cross_entropy(net.forward(x.narrow(0, first, count)),
                                       y.narrow(0, first, count))
      .backward();
  (void)optimizer;
}

double distance(const torch::nn::Module& a, const torch::nn::Module& b) {
  double most = 0;
  for (const auto& item : a.named_parameters())
    most = std::max(most,
                    (item.value() - b.named_parameters()[item.key()]).abs().max().item<double>());
  return most;
}

TEST(DistributedOptimizer, ManyRanksMatchLibTorchOnOne) {
  const auto alone = seeded_net(5);
  torch::optim::Adam plain(alone->parameters(), torch::optim::AdamOptions(0.01));
  for (int64_t step = 0; step < 20; ++step) {
    plain.zero_grad();
    step_once(*alone, plain, step, 0, 12);
    plain.step();
  }
  for (const int ranks : {1, 2, 3}) {
    on_ranks(ranks, [&](std::unique_ptr<Communicator> comm) {
      Session session(std::move(comm));
      const auto net = seeded_net(5 + static_cast<uint64_t>(session.rank()));
      broadcast_parameters(session, *net);
      DistributedOptimizer optimizer(
          session,
          std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(0.01)),
          net->named_parameters());
      const int64_t share = 12 / ranks;
      for (int64_t step = 0; step < 20; ++step) {
        optimizer.zero_grad();
        step_once(*net, optimizer, step, share * session.rank(), share);
        optimizer.step();
      }
      EXPECT_LT(distance(*net, *alone), 1e-5) << ranks;
      EXPECT_EQ(optimizer.mended(), 0U);
      EXPECT_EQ(session.runtime().counters().bytes_copied, 0U);
      EXPECT_EQ(session.runtime().counters().control_messages, 0U);
    });
  }
}

// Sums of losses divided by the whole batch; gradients are clipped between synchronize() and
// step().
TEST(DistributedOptimizer, SumsUnequalPartsAndLetsThemBeClipped) {
  const auto loss_of = [](Net& net, int64_t step, int64_t first, int64_t count) {
    auto [x, y] = samples_of(step, 12);
    const auto how = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
    return torch::nn::functional::cross_entropy(net.forward(x.narrow(0, first, count)),
                                                y.narrow(0, first, count), how) /
           12;
  };
  const auto alone = seeded_net(5);
  torch::optim::SGD plain(alone->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  for (int64_t step = 0; step < 20; ++step) {
    plain.zero_grad();
    loss_of(*alone, step, 0, 12).backward();
    EXPECT_GT(torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.02), 0.02);
    plain.step();
  }
  on_ranks(3, [&](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const auto net = seeded_net(5);
    DistributedOptimizer optimizer(
        session,
        std::make_unique<torch::optim::SGD>(net->parameters(),
                                            torch::optim::SGDOptions(0.5).momentum(0.9)),
        net->named_parameters(), {.averages = false});
    const std::vector<std::pair<int64_t, int64_t>> parts = {{0, 6}, {6, 1}, {7, 5}};
    const auto [first, count] = parts[static_cast<size_t>(session.rank())];
    for (int64_t step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      loss_of(*net, step, first, count).backward();
      optimizer.synchronize();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.02);
      optimizer.step();
    }
    EXPECT_LT(distance(*net, *alone), 1e-5);
    EXPECT_EQ(optimizer.mended(), 0U);
  });
}

TEST(DistributedOptimizer, GradientsThatLeftTheirBucketsAreCopiedBack) {
  on_ranks(2, [](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const auto net = seeded_net(5);
    const auto twin = seeded_net(5);
    torch::optim::SGD plain(twin->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer optimizer(
        session,
        std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1)),
        net->named_parameters());
    for (int64_t step = 0; step < 3; ++step) {
      optimizer.inner().zero_grad();  // sets them to none: the views are gone
      plain.zero_grad();
      step_once(*net, optimizer, step, 6 * session.rank(), 6);
      step_once(*twin, plain, step, 0, 12);
      optimizer.step();
      plain.step();
    }
    EXPECT_LT(distance(*net, *twin), 1e-6);
    EXPECT_EQ(optimizer.mended(), 3 * 6U);  // the unused layer's, too
  });
}

TEST(DistributedOptimizer, ForgetsGradientsThatNobodyWants) {
  on_ranks(2, [](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const auto net = seeded_net(5);
    const auto twin = seeded_net(5);
    torch::optim::SGD plain(twin->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer optimizer(
        session,
        std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1)),
        net->named_parameters());
    step_once(*net, optimizer, 7, 0, 12);  // a batch that is skipped
    optimizer.zero_grad();
    step_once(*net, optimizer, 1, 6 * session.rank(), 6);
    optimizer.step();
    step_once(*twin, plain, 1, 0, 12);
    plain.step();
    EXPECT_LT(distance(*net, *twin), 1e-6);
  });
}

TEST(DistributedOptimizer, AveragesSeveralPassesAndRefusesTooMany) {
  on_ranks(2, [](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const auto net = seeded_net(5);
    const auto twin = seeded_net(5);
    torch::optim::SGD plain(twin->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer::Options options;
    options.backward_passes_per_step = 2;
    DistributedOptimizer optimizer(
        session,
        std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1)),
        net->named_parameters(), options);
    for (int64_t step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      plain.zero_grad();
      for (int64_t pass = 0; pass < 2; ++pass)
        step_once(*net, optimizer, step, 6 * session.rank() + 3 * pass, 3);
      step_once(*twin, plain, step, 0, 12);
      optimizer.step();
      plain.step();
    }
    EXPECT_LT(distance(*net, *twin), 1e-6);
    optimizer.zero_grad();
    for (int64_t pass = 0; pass < 2; ++pass) step_once(*net, optimizer, 0, 0, 6);
    EXPECT_THROW(step_once(*net, optimizer, 0, 0, 6), std::exception);
    EXPECT_THROW(optimizer.step(), UsageError);
    optimizer.zero_grad();
    for (int64_t pass = 0; pass < 2; ++pass) step_once(*net, optimizer, 0, 0, 6);
    optimizer.step();
  });
}

TEST(DistributedOptimizer, NeverAppliesGradientsThatWereNotReduced) {
  on_ranks(2, [](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const auto net = seeded_net(5);
    const auto before = seeded_net(5);
    DistributedOptimizer optimizer(
        session,
        std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1)),
        net->named_parameters());
    // Under the name of a gradient, and in flight until the gradient's hook has failed.
    std::array<float, 3> other = {1, 2, 3};
    std::latch failed(1);
    NamedOptions options;
    options.ready = [&] { failed.wait(); };
    const Work taken = session.runtime().all_reduce("first.bias", view_of(other), options);
    EXPECT_THROW(step_once(*net, optimizer, 1, 6 * session.rank(), 6), std::exception);
    failed.count_down();
    taken.wait();
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_THROW(optimizer.step(), UsageError);
      EXPECT_EQ(distance(*net, *before), 0);
    }
    EXPECT_EQ(optimizer.steps(), 0U);
    optimizer.zero_grad();
    step_once(*net, optimizer, 1, 6 * session.rank(), 6);
    optimizer.step();
    torch::optim::SGD plain(before->parameters(), torch::optim::SGDOptions(0.1));
    step_once(*before, plain, 1, 0, 12);
    plain.step();
    EXPECT_LT(distance(*net, *before), 1e-6);
  });
}

TEST(DistributedOptimizer, AveragesOverTheRanksThatContribute) {
  on_ranks(3, [](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const auto net = seeded_net(5);
    const auto twin = seeded_net(5);
    DistributedOptimizer optimizer(
        session,
        std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1)),
        net->named_parameters());
    if (session.rank() < 2) {
      step_once(*net, optimizer, 1, 6 * session.rank(), 6);
      optimizer.step();
      torch::optim::SGD plain(twin->parameters(), torch::optim::SGDOptions(0.1));
      step_once(*twin, plain, 1, 0, 12);
      plain.step();
      EXPECT_LT(distance(*net, *twin), 1e-6);
    }
    session.runtime().join();
  });
}

TEST(GradientBuckets, WaitForAllOperationsEvenIfOneFails) {
  on_ranks(2, [](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    std::vector<TensorSpec> specs(2);
    specs[0].name = "a";
    specs[1].name = "b";
    specs[0].count = specs[1].count = 1U << 16;
    GradientBuckets buckets(session.runtime(), specs);
    std::vector<float> other(8);
    const bool is_first = session.rank() == 0;
    for (int step = 0; step < 3; ++step) {
      buckets.begin();
      auto* values = static_cast<float*>(buckets.view(0).data);
      std::fill_n(values, 1U << 16, 1.0F);
      Work wrong;  // "b" fails: rank 0 submits another array under its name
      if (is_first) wrong = session.runtime().all_reduce("b", view_of(other));
      if (!is_first) buckets.submit(1);
      buckets.submit(0);
      if (is_first) {
        EXPECT_THROW(wrong.wait(), UsageError);
        buckets.wait();
      } else {
        EXPECT_THROW(buckets.wait(), UsageError);
      }
      for (size_t i = 0; i < (1U << 16); ++i) ASSERT_EQ(values[i], 2.0F);  // "a" has ended
    }
  });
}

TEST(Broadcast, BringsStateOfOptimizersToEveryRank) {
  const auto check = [](const auto& make) {
    on_ranks(2, [&](std::unique_ptr<Communicator> comm) {
      Session session(std::move(comm));
      const auto net = seeded_net(5);
      const std::unique_ptr<torch::optim::Optimizer> optimizer = make(*net, session.rank());
      const auto run = [&](int64_t steps) {
        for (int64_t step = 0; step < steps; ++step) {
          optimizer->zero_grad();
          step_once(*net, *optimizer, step, 0, 12);
          optimizer->step();
        }
      };
      if (session.rank() == 0) run(3);
      broadcast_parameters(session, *net);
      broadcast_optimizer_state(session, *optimizer);
      run(3);  // goes the same way on both
      for (const auto& item : net->named_parameters()) {
        const torch::Tensor other = item.value().detach().clone();
        NamedTensors one;
        one.insert("x", other);
        broadcast_parameters(session, one);
        EXPECT_TRUE(torch::equal(other, item.value())) << item.key();
      }
    });
  };
  using namespace torch::optim;
  check([](Net& net, int rank) {
    return std::make_unique<SGD>(net.parameters(), SGDOptions(rank == 0 ? 0.1 : 0.3).momentum(0.9));
  });
  check([](Net& net, int rank) {
    return std::make_unique<Adam>(net.parameters(),
                                  AdamOptions(rank == 0 ? 0.01 : 0.3).amsgrad(true));
  });
  check(
      [](Net& net, int) { return std::make_unique<AdamW>(net.parameters(), AdamWOptions(0.01)); });
  check([](Net& net, int) {
    return std::make_unique<RMSprop>(net.parameters(), RMSpropOptions(0.01).momentum(0.9));
  });
  check([](Net& net, int) {
    return std::make_unique<Adagrad>(net.parameters(), AdagradOptions(0.01));
  });
  on_ranks(1, [](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const auto net = seeded_net(5);
    LBFGS other(net->parameters(), LBFGSOptions(0.1));
    EXPECT_THROW(broadcast_optimizer_state(session, other), UsageError);
  });
}

// Every kind of buffer that a module may have.
struct Buffered : torch::nn::Module {
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::BatchNorm1d without{nullptr};
  torch::Tensor doubles, table, mask;
  Buffered() {
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    without = register_module(
        "without",
        torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(4).track_running_stats(false)));
    doubles = register_buffer("doubles", torch::zeros({2, 3}, torch::kFloat64).t());
    table = register_buffer("table", torch::zeros({3}, torch::kInt32));
    mask = register_buffer("mask", torch::zeros({2}, torch::kBool));
  }
};

TEST(Statistics, AreAveragedOverRanksAndOthersAreLeftAlone) {
  constexpr int kRanks = 3;
  std::vector<std::shared_ptr<Buffered>> nets;
  std::vector<std::map<std::string, torch::Tensor>> before(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    nets.push_back(std::make_shared<Buffered>());
    Buffered& net = *nets.back();
    for (int step = 0; step <= rank; ++step)
      net.norm(torch::sin(torch::arange(24, torch::kFloat32) * (step + rank + 1)).view({6, 4}));
    net.doubles.copy_(torch::arange(6, torch::kFloat64).view({3, 2}) * (0.1 * (rank + 1)));
    net.table.fill_(rank);
    net.mask.fill_(rank == 1);
    for (const auto& item : net.named_buffers())
      if (item.value().defined()) before[rank][item.key()] = item.value().clone();
    for (const auto& item : net.named_parameters()) {
      torch::NoGradGuard guard;
      item.value().add_(rank);
      before[rank][item.key()] = item.value().detach().clone();
    }
  }
  on_ranks(kRanks, [&](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    average_statistics(session, *nets[static_cast<size_t>(session.rank())]);
  });
  for (const char* name : {"norm.running_mean", "norm.running_var", "doubles"}) {
    const torch::Tensor mean =
        (before[0][name].to(torch::kFloat64) + before[1][name] + before[2][name]) / 3;
    EXPECT_GT((before[0][name] - before[1][name]).abs().max().item<double>(), 0.01) << name;
    for (const auto& net : nets) {
      const torch::Tensor now = net->named_buffers()[name];
      EXPECT_LT((now - mean).abs().max().item<double>(), 1e-6) << name;
      EXPECT_TRUE(torch::equal(now, nets[0]->named_buffers()[name])) << name;
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const Buffered& net = *nets[static_cast<size_t>(rank)];
    for (const char* name : {"norm.num_batches_tracked", "table", "mask"})
      EXPECT_TRUE(torch::equal(net.named_buffers()[name], before[rank][name])) << name;
    for (const auto& item : net.named_parameters())
      EXPECT_TRUE(torch::equal(item.value(), before[rank][item.key()])) << item.key();
  }
  on_ranks(kRanks, [&](std::unique_ptr<Communicator> comm) {  // undefined buffers are skipped
    Session session(std::move(comm));
    broadcast_parameters(session, *nets[static_cast<size_t>(session.rank())], 1);
  });
  for (const auto& net : nets) EXPECT_TRUE(torch::equal(net->table, before[1]["table"]));
}

}  // namespace
}  // namespace horon::train
