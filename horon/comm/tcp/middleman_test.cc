#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "horon/base/error.h"
#include "horon/net/socket.h"
#include "tests/support/tcp_ranks.h"

// What somebody between two ranks can do to their bytes.
namespace horon {
namespace {

using testing_support::exchange;
using testing_support::pattern;
using testing_support::run;
using testing_support::soon;
using testing_support::swap_with_other;
using testing_support::wire;

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
