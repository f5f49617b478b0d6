#include "horon/comm/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "horon/base/error.h"
#include "tests/support/tcp_ranks.h"

namespace horon {
namespace {

using testing_support::exchange;
using testing_support::kPatience;
using testing_support::pattern;
using testing_support::run;
using testing_support::soon;
using testing_support::swap_with_other;

class TcpTransportTest : public testing::TestWithParam<bool> {
 protected:
  TcpTransportTest() { options_.is_private = GetParam(); }
  TcpOptions options_;
};

TEST_P(TcpTransportTest, BringsMessagesOfAllSizes) {
  for (const int sockets : {1, 3}) {
    options_.sockets = sockets;
    const auto errors = run(2, options_, [](int, Transport& transport) {
      for (const size_t bytes : {0, 1, 24, 16'360, 16'361, 100'000, 5'000'000})
        EXPECT_TRUE(swap_with_other(transport, 1, bytes)) << bytes;
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
  }
}

TEST_P(TcpTransportTest, KeysAreReplacedWhileBytesFlow) {
  options_.key_bytes = 1U << 20;
  const auto errors = run(2, options_, [](int, Transport& transport) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(swap_with_other(transport, 1, 5'000'000));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

constexpr int kSmallest = 4096;

// Every TCP connection of this process gets such buffers.
void resize_sockets(int to_send, int to_receive) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &to_send, sizeof(to_send));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &to_receive, sizeof(to_receive));
  }
}

// Returns when both ranks have exchanged something.
void connect_both(Transport& transport, std::barrier<>& both) {
  EXPECT_TRUE(swap_with_other(transport, 3, 1));
  both.arrive_and_wait();
}

TEST_P(TcpTransportTest, TwoFlowsInOppositeOrderDoNotBlockEachOther) {
  constexpr size_t kBytes = 100U << 20;
  std::barrier all(2);
  const auto errors = run(2, options_, [&](int rank, Transport& transport) {
    connect_both(transport, all);
    resize_sockets(64U << 10, 64U << 10);
    all.arrive_and_wait();
    // Each rank has begun to send in its first flow before it uses the second one: an exchange in a
    // third flow lies in between.
    const uint64_t first = 1 + static_cast<uint64_t>(rank);
    std::vector<uint8_t> mine = pattern(kBytes, rank);
    std::vector<uint8_t> theirs(kBytes);
    auto early = std::async(std::launch::async, [&] {
      exchange(transport, first,
               {{1 - rank, true, mine.data(), kBytes}, {1 - rank, false, theirs.data(), kBytes}});
    });
    EXPECT_TRUE(swap_with_other(transport, 3, 70'000));
    std::vector<uint8_t> others(kBytes);
    exchange(transport, 3 - first,
             {{1 - rank, true, mine.data(), kBytes}, {1 - rank, false, others.data(), kBytes}});
    early.get();
    const auto expected = pattern(kBytes, 1 - rank);
    EXPECT_TRUE(theirs == expected);
    EXPECT_TRUE(others == expected);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_P(TcpTransportTest, ManyFlowsFromManyThreadsOnThreeRanks) {
  const auto errors = run(3, options_, [](int rank, Transport& transport) {
    std::vector<std::future<void>> threads;
    for (const uint64_t flow : {1, 2, 3}) {
      threads.push_back(std::async(std::launch::async, [&, flow] {
        for (int i = 0; i < 100; ++i) {
          const size_t bytes = static_cast<size_t>(i) * (flow == 2 ? 9000 : 7) + 1;
          std::vector<Message> messages;
          std::vector<std::vector<uint8_t>> room(6);
          for (int peer = 0; peer < 3; ++peer) {
            if (peer == rank) continue;
            room[peer] = pattern(bytes, 10 * rank + peer);
            room[3 + peer].resize(bytes);
            messages.push_back({peer, true, room[peer].data(), bytes});
            messages.push_back({peer, false, room[3 + peer].data(), bytes});
          }
          exchange(transport, flow, messages);
          for (int peer = 0; peer < 3; ++peer) {
            if (peer == rank) continue;
            EXPECT_EQ(room[3 + peer], pattern(bytes, 10 * peer + rank));
          }
        }
      }));
    }
    for (auto& thread : threads) thread.get();
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST_P(TcpTransportTest, AnExchangeThatGaveUpLeavesItsMemoryAlone) {
  std::atomic<bool> gave_up{false};
  const auto errors = run(2, options_, [&](int rank, Transport& transport) {
    std::vector<uint8_t> room(1 << 20);
    if (rank == 0) {
      EXPECT_THROW(
          exchange(transport, 1, {{1, false, room.data(), room.size()}}, Milliseconds(200)),
          TimeoutError);
      gave_up = true;
      gave_up.notify_all();
      EXPECT_THROW(exchange(transport, 1, {{1, false, room.data(), room.size()}}), TimeoutError);
      EXPECT_EQ(room, std::vector<uint8_t>(1 << 20));
    } else {
      gave_up.wait(false);
      auto late = pattern(room.size(), 5);
      EXPECT_THROW(exchange(transport, 1, {{0, true, late.data(), late.size()}}), Error);
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_P(TcpTransportTest, ARankThatLeavesIsNamed) {
  const auto errors = run(3, options_, [&](int rank, Transport& transport) {
    if (rank == 2) return;
    std::vector<uint8_t> room(100);
    exchange(transport, 1, {{2, false, room.data(), room.size()}});
  });
  EXPECT_NE(errors[0].find("rank 2 closed"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("rank 2 closed"), std::string::npos) << errors[1];
}

// A rank whose call throws in the middle of an exchange cannot send the rest of it.
TEST_P(TcpTransportTest, AnExceptionOfTheCallersIsNotEndlessForTheOthers) {
  const auto errors = run(2, options_, [&](int rank, Transport& transport) {
    std::vector<uint8_t> a(10), b(10);
    const std::vector<Message> messages = {{1 - rank, true, a.data(), a.size()},
                                           {1 - rank, false, b.data(), b.size()}};
    if (rank == 1) return exchange(transport, 1, messages), exchange(transport, 1, messages);
    std::vector<uint8_t> unsent(5'000'000);
    std::vector<Message> more = messages;
    more.push_back({1, true, unsent.data(), unsent.size()});
    const Exchange throws{
        .messages = more,
        .flow = 1,
        .timeout = kPatience,
        .doing = [] { return std::string("a test"); },
        .received = [](size_t, const void*,
                       std::vector<Message>&) { throw std::runtime_error("no room"); }};
    EXPECT_THROW(transport.exchange(throws), std::runtime_error);
    unsent = {};  // the next exchange does not look at it
    exchange(transport, 2, messages);
  });
  EXPECT_FALSE(errors[0].empty());
  EXPECT_FALSE(errors[1].empty());
}

// One thread gives up while another one computes: what the second then posts goes past the first
// one's messages, whose memory is gone.
TEST_P(TcpTransportTest, ThreadsThatGoOnDoNotTouchWhatAnotherOneGaveUp) {
  std::barrier both(2);
  const auto errors = run(2, options_, [&](int rank, Transport& transport) {
    std::vector<uint8_t> a(10), b(10);
    if (rank == 1) {
      exchange(transport, 1, {{0, true, a.data(), 1}});
      EXPECT_THROW(exchange(transport, 1, {{0, false, b.data(), 10}}), Error);
      return both.arrive_and_wait();
    }
    std::promise<void> gave_up;
    const auto respond = [&](size_t, const void*, std::vector<Message>& more) {
      gave_up.get_future().wait();
      more.push_back({1, true, a.data(), 10});
    };
    auto first = std::async(std::launch::async, [&] {
      const std::vector<Message> messages = {{1, false, b.data(), 1}};
      transport.exchange({.messages = messages,
                          .flow = 1,
                          .timeout = kPatience,
                          .doing = [] { return std::string("a test"); },
                          .received = respond});
    });
    {
      std::vector<uint8_t> large(2'000'000);  // beyond what may be sent before it is posted
      EXPECT_THROW(
          exchange(transport, 2, {{1, true, large.data(), large.size()}}, Milliseconds(300)),
          TimeoutError);
    }
    gave_up.set_value();
    EXPECT_THROW(first.get(), Error);
    both.arrive_and_wait();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

double seconds_of_this_thread() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// Fills the sockets' buffers for as long as nobody reads.
TEST_P(TcpTransportTest, ASocketThatTakesNoMoreIsWaitedForWithoutWork) {
  std::barrier all(2);
  const auto errors = run(2, options_, [&](int rank, Transport& transport) {
    connect_both(transport, all);
    if (rank == 0) {
      resize_sockets(kSmallest, kSmallest);
      std::vector<uint8_t> mine(5'000'000);
      const double before = seconds_of_this_thread();
      EXPECT_THROW(exchange(transport, 1, {{1, true, mine.data(), mine.size()}}, Milliseconds(800)),
                   TimeoutError);
      EXPECT_LT(seconds_of_this_thread() - before, 0.4);
    }
    all.arrive_and_wait();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// Else its system would end the connection after some seconds.
TEST_P(TcpTransportTest, ARankThatIsBusyElsewhereStillReads) {
  std::barrier all(2);
  std::barrier sent(2);
  const auto errors = run(2, options_, [&](int rank, Transport& transport) {
    connect_both(transport, all);
    resize_sockets(32U << 10, 32U << 10);
    all.arrive_and_wait();
    constexpr size_t kBytes = 250'000;
    if (rank == 0) {
      auto mine = pattern(kBytes, 1);
      exchange(transport, 1, {{1, true, mine.data(), mine.size()}});
      return sent.arrive_and_wait();
    }
    sent.arrive_and_wait();  // no exchange until then
    std::vector<uint8_t> theirs(kBytes);
    exchange(transport, 1, {{0, false, theirs.data(), theirs.size()}});
    EXPECT_TRUE(theirs == pattern(kBytes, 1));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// Its last message is as long as what a socket sends in one turn.
TEST_P(TcpTransportTest, ARankThatHasSentItsShareLeavesWithoutHarm) {
  std::shared_ptr<Store> store;
  const auto body = [&](int rank, Transport& transport) {
    std::vector<uint8_t> data(512U << 10);
    if (rank == 0) {
      for (int peer : {1, 2})
        exchange(transport, 1, {{peer, true, data.data(), 1}, {peer, false, data.data(), 1}});
      return exchange(transport, 1, {{1, true, data.data(), data.size()}});
    }
    std::vector<uint8_t> byte(2);
    exchange(transport, 1, {{0, true, byte.data(), 1}, {0, false, byte.data() + 1, 1}});
    if (rank == 1) exchange(transport, 1, {{0, false, data.data(), data.size()}});
    store->get("left/0", soon());
    for (int i = 0; i < 300; ++i)
      exchange(transport, 2, {{3 - rank, true, byte.data(), 1}, {3 - rank, false, &byte[1], 1}});
  };
  for (int i = 0; i < 10; ++i) {
    store = make_memory_store();
    EXPECT_EQ(run(3, options_, body, [&](int) { return store; }), std::vector<std::string>(3));
  }
}

// Bytes that nobody has read make a closing connection forget what it has not yet delivered.
TEST_P(TcpTransportTest, WhatWasSentArrivesAfterItsSenderIsGone) {
  const auto store = make_memory_store();
  std::barrier all(2);
  const auto body = [&](int rank, Transport& transport) {
    connect_both(transport, all);
    resize_sockets(200'000, 16U << 10);
    all.arrive_and_wait();
    constexpr size_t kBytes = 150'000;
    std::vector<uint8_t> theirs(kBytes);
    if (rank == 0) {
      all.arrive_and_wait();
      auto mine = pattern(kBytes, 1);
      return exchange(transport, 1, {{1, true, mine.data(), mine.size()}});
    }
    exchange(transport, 2, {{0, true, theirs.data(), 40'000}});
    all.arrive_and_wait();
    store->get("left/0", soon());
    exchange(transport, 1, {{0, false, theirs.data(), theirs.size()}});
    EXPECT_TRUE(theirs == pattern(kBytes, 1));
  };
  EXPECT_EQ(run(2, options_, body, [&](int) { return store; }), std::vector<std::string>(2));
}

INSTANTIATE_TEST_SUITE_P(Wires, TcpTransportTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "private" : "plain"; });

}  // namespace
}  // namespace horon
