#include "horon/comm/tcp/tcp_transport.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "horon/base/error.h"
#include "horon/net/socket.h"

namespace horon {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }
constexpr Milliseconds kPatience{20000};

std::vector<uint8_t> pattern(size_t bytes, int seed) {
  std::vector<uint8_t> data(bytes);
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761U + 1;
  for (uint8_t& byte : data) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return data;
}

// Runs `body` on each rank of a new transport, each in a thread; the errors' texts, "" without.
using Body = std::function<void(int rank, Transport& transport)>;
std::vector<std::string> run(int size, const TcpOptions& base, const Body& body,
                             const std::function<std::shared_ptr<Store>(int)>& store_of) {
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      TcpOptions options = base;
      options.rank = rank;
      options.size = size;
      options.host_id = "here";
      try {
        const auto transport = make_tcp_transport(options, store_of(rank), Log());
        std::vector<int> all;
        for (int peer = 0; peer < size; ++peer) all.push_back(peer);
        transport->connect(all);
        for (const uint64_t flow : {1, 2, 3}) transport->open_flow(flow, all);
        body(rank, *transport);
      } catch (const std::exception& error) {
        return error.what();
      }
      return "";
    }));
  }
  std::vector<std::string> errors;
  for (auto& rank : ranks) errors.push_back(rank.get());
  return errors;
}

TcpOptions wire(bool is_private) {
  TcpOptions options;
  options.is_private = is_private;
  return options;
}

std::vector<std::string> run(int size, const TcpOptions& base, const Body& body) {
  const auto store = make_memory_store();
  return run(size, base, body, [&](int) { return store; });
}

void exchange(Transport& transport, uint64_t flow, const std::vector<Message>& messages,
              Milliseconds timeout = kPatience) {
  transport.exchange({.messages = messages,
                      .flow = flow,
                      .timeout = timeout,
                      .doing = [] { return std::string("a test"); },
                      .received = {}});
}

// Sends `bytes` to the other of two ranks and receives as many; false if others came.
bool swap_with_other(Transport& transport, uint64_t flow, size_t bytes) {
  const int me = transport.rank();
  auto mine = pattern(bytes, me + static_cast<int>(flow));
  std::vector<uint8_t> theirs(bytes);
  exchange(transport, flow,
           {{1 - me, true, mine.data(), bytes}, {1 - me, false, theirs.data(), bytes}});
  return theirs == pattern(bytes, 1 - me + static_cast<int>(flow));
}

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

TEST_P(TcpTransportTest, TwoFlowsInOppositeOrderDoNotBlockEachOther) {
  constexpr size_t kBytes = 100U << 20;
  std::barrier all(2);
  const auto errors = run(2, options_, [&](int rank, Transport& transport) {
    EXPECT_TRUE(swap_with_other(transport, 3, 1));
    all.arrive_and_wait();
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
    EXPECT_TRUE(swap_with_other(transport, 3, 1));
    all.arrive_and_wait();
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
    EXPECT_TRUE(swap_with_other(transport, 3, 1));
    all.arrive_and_wait();
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
    EXPECT_TRUE(swap_with_other(transport, 3, 1));
    all.arrive_and_wait();
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

// Between rank 1 and rank 0: forwards their bytes, changed.
class Middleman {
 public:
  // What to forward instead of these bytes, which begin at `at` of those that rank `from` sent.
  using Tamper = std::function<std::string(int from, size_t at, std::string bytes)>;
  Middleman(std::shared_ptr<Store> store, Tamper tamper)
      : store_(std::move(store)),
        tamper_(std::move(tamper)),
        listener_(listen_on("127.0.0.1", 0)),
        thread_([this](const std::stop_token& stop) { serve(stop); }) {}

  // The store as rank 1 sees it.
  class Lying final : public Store {
   public:
    Lying(std::shared_ptr<Store> inner, std::string address)
        : inner_(std::move(inner)), address_(std::move(address)) {}

   private:
    void do_set(const std::string& key, const std::string& value, Deadline deadline) override {
      inner_->set(key, value, deadline);
    }
    std::string do_get(const std::string& key, Deadline deadline) override {
      const std::string value = inner_->get(key, deadline);
      return key == "door/at/0" ? address_ : value;
    }
    int64_t do_add(const std::string& key, int64_t amount, Deadline deadline) override {
      return inner_->add(key, amount, deadline);
    }
    bool do_remove(const std::string& key, Deadline deadline) override {
      return inner_->remove(key, deadline);
    }
    std::shared_ptr<Store> inner_;
    std::string address_;
  };
  std::shared_ptr<Store> store_of(int rank) {
    if (rank == 0) return store_;
    return std::make_shared<Lying>(store_, format_endpoint(local_endpoint(listener_.get())));
  }

 private:
  struct Side {
    Fd fd;
    size_t said = 0;
  };

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!wait_for(listener_.get(), POLLIN, Deadline::after(Milliseconds(20)))) continue;
      Fd caller = accept_from(listener_.get());
      if (!caller) continue;
      const Endpoint host = parse_endpoint(store_->get("door/at/0", soon()));
      std::array<Side, 2> sides;  // by rank
      sides[1].fd = std::move(caller);
      sides[0].fd = start_connect(host.host, host.port);
      wait_for(sides[0].fd.get(), POLLOUT, soon());
      while (!stop.stop_requested() && pass_on(sides)) {
      }
    }
  }

  bool pass_on(std::array<Side, 2>& sides) {
    pollfd both[2] = {{sides[0].fd.get(), POLLIN, 0}, {sides[1].fd.get(), POLLIN, 0}};
    poll(both, 2, 20);
    for (int from = 0; from < 2; ++from) {
      if (both[from].revents == 0) continue;
      char piece[4096];
      const ssize_t got = recv(sides[from].fd.get(), piece, sizeof(piece), 0);
      if (got <= 0) return false;
      const std::string told =
          tamper_(from, sides[from].said, std::string(piece, static_cast<size_t>(got)));
      sides[from].said += static_cast<size_t>(got);
      const int to = sides[1 - from].fd.get();
      for (size_t sent = 0; sent < told.size();) {
        wait_for(to, POLLOUT, soon());
        const ssize_t out = send(to, told.data() + sent, told.size() - sent, MSG_NOSIGNAL);
        if (out <= 0) return false;
        sent += static_cast<size_t>(out);
      }
    }
    return true;
  }

  std::shared_ptr<Store> store_;
  Tamper tamper_;
  Fd listener_;
  std::jthread thread_;
};

// The first bytes of a connection prove the ranks to each other (p2p/door.h); records follow.
constexpr size_t kHandshake[] = {
    16 + 32 + 1, 8 + 12 + 16 + 32};  // sent by the listening rank, by the connecting one

std::vector<std::string> talk_through(Middleman& middle, const TcpOptions& options) {
  return run(
      2, options,
      [](int, Transport& transport) {
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(swap_with_other(transport, 1, 100));
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(swap_with_other(transport, 1, 70'000));
      },
      [&](int rank) { return middle.store_of(rank); });
}

TEST(TcpMiddleman, HonestOnesAreNotNoticed) {
  for (const bool is_private : {true, false}) {
    Middleman middle(make_memory_store(), [](int, size_t, std::string bytes) { return bytes; });
    EXPECT_EQ(talk_through(middle, wire(is_private)), std::vector<std::string>(2));
  }
}

TEST(TcpMiddleman, EveryFlippedBitIsAnErrorOnBothRanks) {
  for (const int from : {0, 1}) {
    for (const size_t at : {0, 3, 4, 30, 60, 127, 143, 500, 70'000}) {
      Middleman middle(make_memory_store(), [&](int rank, size_t begin, std::string bytes) {
        const size_t target = kHandshake[rank] + at;
        if (rank == from && begin <= target && target < begin + bytes.size())
          bytes[target - begin] = static_cast<char>(bytes[target - begin] ^ 0x10);
        return bytes;
      });
      // A changed length can also announce bytes that never come.
      const auto errors = talk_through(middle, wire(true));
      EXPECT_TRUE(!errors[0].empty() && !errors[1].empty()) << from << " at " << at;
      if (at > 3) {
        EXPECT_NE((errors[0] + errors[1]).find("was changed on its way"), std::string::npos)
            << errors[0] << errors[1];
      }
    }
  }
}

TEST(TcpMiddleman, RepeatedAndOmittedRecordsAreErrors) {
  const size_t record = 4 + 24 + 100 + 16;  // the first message
  for (const bool repeats : {true, false}) {
    Middleman middle(make_memory_store(), [&](int rank, size_t begin, std::string bytes) {
      if (rank != 1 || begin != kHandshake[1]) return bytes;
      EXPECT_GE(bytes.size(), record);
      const std::string first = bytes.substr(0, record);
      return repeats ? first + bytes : bytes.substr(record);
    });
    const auto errors = run(
        2, wire(true),
        [](int, Transport& transport) {
          for (int i = 0; i < 3; ++i) {
            std::vector<uint8_t> theirs(100);
            auto mine = pattern(100, transport.rank());
            exchange(transport, 1,
                     {{1 - transport.rank(), true, mine.data(), 100},
                      {1 - transport.rank(), false, theirs.data(), 100}},
                     Milliseconds(2000));
            EXPECT_TRUE(theirs == pattern(100, 1 - transport.rank()));
          }
        },
        [&](int rank) { return middle.store_of(rank); });
    EXPECT_TRUE(!errors[0].empty() && !errors[1].empty()) << repeats << errors[0] << errors[1];
  }
}

TEST(TcpMiddleman, AConnectionThatIsCutIsALostPeer) {
  Middleman middle(make_memory_store(), [](int rank, size_t begin, std::string bytes) {
    return begin > kHandshake[rank] + 1000 ? std::string() : bytes;
  });
  const auto errors = run(
      2, wire(true),
      [](int, Transport& transport) {
        std::vector<uint8_t> mine(1 << 20);
        std::vector<uint8_t> theirs(1 << 20);
        exchange(transport, 1,
                 {{1 - transport.rank(), true, mine.data(), mine.size()},
                  {1 - transport.rank(), false, theirs.data(), theirs.size()}},
                 Milliseconds(1000));
      },
      [&](int rank) { return middle.store_of(rank); });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("no progress for"), std::string::npos) << error;
}

TEST(TcpMiddleman, CannotChangeTheHandshake) {
  for (const int from : {0, 1}) {
    for (size_t at = 0; at < kHandshake[from]; at += 5) {
      std::atomic<int> tampered = 0;
      Middleman middle(make_memory_store(), [&](int rank, size_t begin, std::string bytes) {
        const bool is_here = rank == from && begin <= at && at < begin + bytes.size();
        if (is_here && tampered++ == 0) bytes[at - begin] ^= 0x01;
        return bytes;
      });
      // The first connection is given up, the next one is left alone.
      const auto errors = talk_through(middle, wire(true));
      EXPECT_EQ(errors, std::vector<std::string>(2)) << from << " at " << at;
      EXPECT_GE(tampered, 2) << from << " at " << at;
    }
  }
}

}  // namespace
}  // namespace horon
