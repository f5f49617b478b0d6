#include "horon/runtime/session.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/runtime/detail_on_ranks.h"

namespace horon {
namespace {

TensorSpec spec_of(const std::string& name, uint64_t count, int priority = 0) {
  TensorSpec spec;
  spec.name = name;
  spec.count = count;
  spec.priority = priority;
  return spec;
}

// Runs body(rank) on as many threads.
template <typename Body>
void on_threads(int ranks, const Body& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void fill(const BufferView& view, float value) {
  auto* at = static_cast<float*>(view.data);
  std::fill(at, at + view.count, value);
}
float first_of(const BufferView& view) { return *static_cast<const float*>(view.data); }

// A step of a program that declares two tensors and brings another one besides.
void run_step(Runtime& runtime, const BucketMemory& memory, std::vector<float>& other) {
  const auto value = static_cast<float>(runtime.rank() + 1);
  for (const BufferView& view : memory.views) fill(view, value);
  std::fill(other.begin(), other.end(), value);
  const Work a = runtime.all_reduce("a", memory.views[0]);
  const Work b = runtime.all_reduce("b", memory.views[1], {.priority = 1});
  const Work c = runtime.all_reduce("c", view_of(other));
  for (const Work& work : {a, b, c}) work.wait();
}

void expect_sum(const BucketMemory& memory, const std::vector<float>& other, float want) {
  for (const BufferView& view : memory.views) EXPECT_EQ(first_of(view), want);
  EXPECT_EQ(other.front(), want);
}

const std::vector<TensorSpec> kDeclared = {spec_of("a", 1000), spec_of("b", 10, 1)};

TEST(Rebind, KeepsNamesAndOrderWhenARankIsLost) {
  auto world = make_local_world(3);
  auto next = make_local_world(2);
  on_threads(3, [&](int rank) {
    Runtime runtime(std::move(world[rank]));
    BucketMemory memory = runtime.allocate_buckets(kDeclared);
    std::vector<float> other(7);
    for (int step = 0; step < 4; ++step) run_step(runtime, memory, other);
    expect_sum(memory, other, 6);
    if (rank == 2) return;  // and is gone
    EXPECT_THROW(while (true) run_step(runtime, memory, other), PeerLostError);
    const RuntimeCounters before = runtime.counters();
    const BufferView old = memory.views[0];
    BucketMemory anew = runtime.rebind(std::move(next[rank]), {});
    EXPECT_EQ(runtime.size(), 2);
    run_step(runtime, anew, other);
    expect_sum(anew, other, 3);
    const RuntimeCounters after = runtime.counters();
    EXPECT_EQ(after.control_messages, before.control_messages) << "something was agreed on again";
    EXPECT_GE(after.operations, before.operations + 3);
    EXPECT_NE(anew.views[0].data, old.data);
    fill(old, 5);  // memory of before is still there
    EXPECT_EQ(first_of(old), 5);
    runtime.barrier("end").wait();
  });
}

TEST(Rebind, NewcomersDeclareTheSame) {
  auto world = make_local_world(2);
  auto next = make_local_world(3);
  on_threads(3, [&](int rank) {
    std::vector<float> other(7);
    std::unique_ptr<Runtime> runtime;
    BucketMemory memory;
    if (rank < 2) {
      runtime = std::make_unique<Runtime>(std::move(world[rank]));
      memory = runtime->allocate_buckets(kDeclared);
      for (int step = 0; step < 3; ++step) run_step(*runtime, memory, other);
      runtime->barrier("over").wait();
      memory = runtime->rebind(std::move(next[rank]), {});
    } else {
      runtime = std::make_unique<Runtime>(std::move(next[rank]));
      memory = runtime->allocate_buckets(kDeclared);
    }
    for (int step = 0; step < 3; ++step) {
      run_step(*runtime, memory, other);
      expect_sum(memory, other, 6);
    }
    runtime->barrier("end").wait();
  });
}

TEST(Rebind, WhatIsInFlightEndsWithAnError) {
  auto world = make_local_world(2);
  auto next = make_local_world(2);
  on_threads(2, [&](int rank) {
    Runtime runtime(std::move(world[rank]));
    std::vector<float> data(3, 1.0F);
    Work never;
    if (rank == 0) never = runtime.all_reduce("never", view_of(data));
    runtime.rebind(std::move(next[rank]), {});
    if (rank == 0) {
      EXPECT_THROW(never.wait(), Error);
    }
    runtime.run_all_reduce("again", view_of(data));
    EXPECT_EQ(data[0], 2);
    runtime.barrier("end").wait();
  });
}

TEST(Rebind, KeepsCodecState) {
  auto world = make_local_world(2);
  auto next = make_local_world(2);
  on_threads(2, [&](int rank) {
    Runtime runtime(std::move(world[rank]));
    std::vector<float> data(100, 1.0F / 3.0F);
    runtime.all_reduce("x", view_of(data), {.codec = "bf16+feedback"}).wait();
    const CodecStates before = runtime.save_codec_state();
    ASSERT_EQ(before.size(), 1U);
    runtime.rebind(std::move(next[rank]), {});
    EXPECT_EQ(runtime.save_codec_state(), before);
    runtime.barrier("end").wait();
  });
}

TEST(Rebind, ProcessSetsAreMadeAgain) {
  auto world = make_local_world(2);
  auto next = make_local_world(2);
  on_threads(2, [&](int rank) {
    Runtime runtime(std::move(world[rank]));
    EXPECT_EQ(runtime.add_process_set({0, 1}), 1);
    EXPECT_EQ(runtime.add_process_set({0}), 2);
    runtime.barrier("over").wait();
    runtime.rebind(std::move(next[rank]), {});
    EXPECT_THROW(runtime.process_set(1), UsageError);
    EXPECT_EQ(runtime.add_process_set({1}), 1);
    runtime.barrier("end").wait();
  });
}

Membership membership_of(int rank, int size, const std::shared_ptr<Store>& store) {
  Membership membership;
  membership.rank = rank;
  membership.size = size;
  membership.store = store;
  return membership;
}

TEST(Session, IsRenewedInGenerationsAndComparesSettingsInEach) {
  const auto store = make_memory_store();
  std::atomic<int> refused = 0;
  on_threads(3, [&](int rank) {
    SessionOptions options;
    std::unique_ptr<Session> session;
    std::vector<float> other(7);
    BucketMemory memory;
    if (rank < 2) {
      session = std::make_unique<Session>(membership_of(rank, 2, store), 0, options);
      memory = session->runtime().allocate_buckets(kDeclared);
      run_step(session->runtime(), memory, other);
      session->barrier();
    }
    // A third rank comes with another idea of buckets, and again with the right one.
    for (int generation = 1; generation <= 2; ++generation) {
      try {
        if (rank < 2) {
          memory = session->renew(membership_of(rank, 3, store), generation);
        } else {
          options.job_settings.set("bucket_bytes", generation == 1 ? "1MB" : "25MB", "test");
          session = std::make_unique<Session>(membership_of(rank, 3, store), generation, options);
          memory = session->runtime().allocate_buckets(kDeclared);
        }
      } catch (const UsageError& error) {
        EXPECT_EQ(generation, 1);
        EXPECT_NE(std::string(error.what()).find("bucket_bytes"), std::string::npos)
            << error.what();
        ++refused;
      }
    }
    EXPECT_EQ(session->generation(), 2);
    EXPECT_EQ(session->size(), 3);
    run_step(session->runtime(), memory, other);
    expect_sum(memory, other, 6);
    if (rank < 2) {
      EXPECT_THROW(session->renew(membership_of(rank, 3, store), 2), UsageError);
    }
    session->barrier();
  });
  EXPECT_EQ(refused, 3);
}

TEST(Session, HasATimelineForEachGeneration) {
  const TempFolder folder;
  const auto store = make_memory_store();
  on_threads(2, [&](int rank) {
    SessionOptions options;
    options.job_settings.set("timeline", folder.path() + "/t", "test");
    Session session(membership_of(rank, 2, store), 0, options);
    session.barrier();
    session.renew(membership_of(1 - rank, 2, store), 1);  // they swap ranks
    session.barrier();
    const std::string last = session.runtime().describe_last();
    EXPECT_NE(last.find(fmt::format("of rank {}", 1 - rank)), std::string::npos) << last;
  });
  for (const int rank : {0, 1}) {
    for (const char* generation : {"", ".generation1"}) {
      const std::string text =
          read_small_file(fmt::format("{}/t{}.{}", folder.path(), generation, rank));
      EXPECT_NE(text.find(fmt::format("\"rank\":{}", rank)), std::string::npos) << text;
    }
  }
}

TEST(Session, WritesTheLastOperationsOnSigusr1AlsoWhileItIsRenewed) {
  const TempFolder folder;
  SessionOptions options;
  options.takes_signals = true;
  options.job_settings.set("log_level", "off", "test");
  options.job_settings.set("flight_folder", folder.path(), "test");
  Session session(Membership{}, 0, options);
  signal(SIGUSR1, [](int) {});  // for threads of other tests that have not ended
  {
    const std::jthread sender([](const std::stop_token& stop) {
      while (!stop.stop_requested()) kill(getpid(), SIGUSR1);
    });
    for (int generation = 1; generation <= 100; ++generation)
      session.renew(Membership{}, generation);
  }
  const std::string path =
      fmt::format("{}/horon-last-operations.{}.rank0.txt", folder.path(), getpid());
  std::filesystem::remove(path);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!std::filesystem::exists(path) && !deadline.passed()) {
    kill(getpid(), SIGUSR1);
    std::this_thread::sleep_for(Milliseconds(1));
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  signal(SIGUSR1, SIG_DFL);
}

TEST(Session, SaysNoMoreThanTheLogLevel) {
  const TempFolder folder;
  const auto said = [&](const char* level) {
    SessionOptions options;
    options.job_settings.set("log_level", level, "test");
    options.job_settings.set("flight_folder", folder.path(), "test");
    const Session session(Membership{}, 0, options);
    testing::internal::CaptureStderr();
    session.runtime().dump_last();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said("warn").find("the last operations of this rank are in"), std::string::npos);
  for (const char* level : {"error", "off"}) EXPECT_EQ(said(level), "");
}

TEST(Session, HasAStoreAlsoAlone) {
  for (const char* backend : {"auto", "self", "shm", "gloo", "hier"}) {
    SessionOptions options;
    options.job_settings.set("backend", backend, "test");
    const Session alone(Membership{}, 0, options);
    EXPECT_EQ(alone.sum(3), 3) << backend;
    alone.store()->set("key", "value", Deadline::after(Milliseconds(1000)));
    EXPECT_EQ(alone.store()->get("key", Deadline::after(Milliseconds(1000))), "value");
  }
}

TEST(Session, SeveralInOneProcessRunAtTheSameTime) {
  const auto store = make_memory_store();
  on_threads(2, [&](int rank) {
    const SessionOptions options;
    Session one(membership_of(rank, 2, store), 0, options);
    Session other(membership_of(rank, 2, store), 0, options);
    std::vector<float> data(3, 1.0F);
    std::vector<float> more(3, 10.0F);
    // The same name in both, in different orders.
    const Work first =
        (rank == 0 ? one : other).runtime().all_reduce("x", view_of(rank == 0 ? data : more));
    const Work second =
        (rank == 0 ? other : one).runtime().all_reduce("x", view_of(rank == 0 ? more : data));
    first.wait();
    second.wait();
    EXPECT_EQ(data[0], 2);
    EXPECT_EQ(more[0], 20);
    one.barrier();
    other.barrier();
  });
}

TEST(Session, AProcessCanBeSeveralRanks) {
  const auto store = make_memory_store();
  on_threads(2, [&](int process) {
    SessionOptions options;
    options.connects = false;
    Session whole(membership_of(process, 2, store), 0, options);
    EXPECT_FALSE(whole.is_connected());
    EXPECT_THROW(whole.runtime(), UsageError);
    std::vector<std::unique_ptr<Session>> replicas;
    for (int i = 0; i < 2; ++i) replicas.push_back(whole.replica(i, 2));
    on_threads(2, [&](int i) {
      Session& mine = *replicas[i];
      mine.connect();
      EXPECT_EQ(mine.rank(), 2 * process + i);
      EXPECT_EQ(mine.size(), 4);
      EXPECT_EQ(mine.sum(mine.rank()), 6);
      mine.barrier();
    });
    EXPECT_THROW(whole.replica(2, 2), UsageError);
  });
}

TEST(Session, ReplicasOfALoneProcessFormOneJob) {
  SessionOptions options;
  options.connects = false;
  Session alone(Membership{}, 0, options);
  std::vector<std::unique_ptr<Session>> replicas;
  for (int i = 0; i < 3; ++i) replicas.push_back(alone.replica(i, 3));
  on_threads(3, [&](int i) {
    replicas[i]->connect();
    EXPECT_EQ(replicas[i]->sum(1), 3);
    replicas[i]->barrier();
  });
}

}  // namespace
}  // namespace horon
