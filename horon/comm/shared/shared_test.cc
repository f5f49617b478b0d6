#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <set>

#include "horon/base/error.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/shared/handover.h"
#include "horon/comm/shared/region.h"
#include "horon/comm/shared/shm.h"

namespace horon::shared {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

HandoverOptions place(int rank, int size) {
  return {.rank = rank, .size = size, .names = {0, 1, 2}, .bytes = 1U << 20};
}

// Connects to the door and says something; -1 as soon as the other side hangs up.
ssize_t knock(const std::string& path, const std::string& words) {
  const Fd guest(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  EXPECT_EQ(connect(guest.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(guest.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
  char answer = 0;
  return recv(guest.get(), &answer, 1, 0);
}

TEST(Handover, UnauthenticatedConnectionsGetNothingAndDisturbNoRank) {
  const auto store = make_memory_store();
  auto host =
      std::async(std::launch::async, [&] { return hand_over(place(0, 2), *store, soon()); });
  const std::string path = store->get("shm/door", soon()).substr(32);
  struct stat folder {};
  ASSERT_EQ(stat(path.substr(0, path.rfind('/')).c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 0777, 0700U);
  EXPECT_LE(knock(path, "GET / HTTP/1.1\r\n\r\n................."), 0);
  EXPECT_LE(knock(path, std::string(36, 'x')), 0);  // right length, wrong token, no descriptor
  const Handover guest = hand_over(place(1, 2), *store, soon());
  const Handover made = host.get();
  EXPECT_EQ(guest.processes.size(), 2U);
  struct stat here {};
  struct stat there {};
  fstat(made.memory.get(), &here);
  fstat(guest.memory.get(), &there);
  EXPECT_EQ(here.st_ino, there.st_ino);
  EXPECT_EQ(here.st_size, 1 << 20);
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the door is still there";
}

TEST(Handover, NamesWhoDidNotCome) {
  const auto store = make_memory_store();
  try {
    hand_over(place(0, 3), *store, Deadline::after(Milliseconds(50)));
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), (std::vector<int>{1, 2}));
  }
}

std::unique_ptr<Backend> lone_shm(uint64_t heap_bytes) {
  const auto store = make_memory_store();
  return make_shm_backend(
      {.rank = 0, .size = 1, .names = {0}, .heap_bytes = heap_bytes, .inline_bytes = 65536}, *store,
      Log(LogLevel::kOff));
}

// Pieces of the region; `claim` keeps them, the rest looks at all of them together.
class Pieces {
 public:
  void claim(size_t begin, size_t bytes) { pieces_.emplace_back(begin, begin + bytes); }
  // True if none overlaps another or reaches beyond `end`.
  bool are_apart_below(size_t end) {
    std::sort(pieces_.begin(), pieces_.end());
    for (size_t i = 1; i < pieces_.size(); ++i) {
      if (pieces_[i].first < pieces_[i - 1].second) return false;
    }
    return pieces_.back().second <= end;
  }

 private:
  std::vector<std::pair<size_t, size_t>> pieces_;
};

constexpr size_t kPage = 4096;

// Bases of what is used at the same time, modulo 2^20.
class Residues {
 public:
  bool is_new(size_t base) { return base % kPage == 0 && seen_.insert(base % (1U << 20)).second; }

 private:
  std::set<size_t> seen_;
};

TEST(RegionLayout, WhatIsUsedTogetherIsNeverAPowerOfTwoApart) {
  for (uint64_t heap : {uint64_t{1}, uint64_t{5000}, uint64_t{1} << 20, uint64_t{1} << 27,
                        (uint64_t{1} << 27) + 2 * kPage, uint64_t{1} << 34}) {
    for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
      const RegionLayout layout(ranks, heap);
      Residues heaps;
      for (int rank = 0; rank < ranks; ++rank)
        ASSERT_TRUE(heaps.is_new(layout.heap_at(rank))) << rank << " of " << ranks << ", " << heap;
      for (int channel : {0, 1, kMaxChannels - 1}) {
        Residues slots[2];
        Residues stages;
        for (int member = 0; member < ranks; ++member) {
          for (int parity : {0, 1})
            ASSERT_TRUE(slots[parity].is_new(layout.inline_at(channel, member, parity)))
                << member << " of " << ranks;
          ASSERT_TRUE(stages.is_new(layout.stage_at(channel, member))) << member << " of " << ranks;
        }
      }
      // What a page puts right no other bit of the stride may undo: 12 to 27 go into the hash.
      ASSERT_EQ((layout.heap_at(1) - layout.heap_at(0)) % (1U << 28), kPage) << heap;
    }
  }
}

TEST(RegionLayout, NothingOverlapsAndAllFits) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    const RegionLayout layout(ranks, 3 * kPage + 1);
    EXPECT_EQ(layout.heap_bytes, 4 * kPage);
    Pieces pieces;
    pieces.claim(0, sizeof(RegionControl));
    for (int channel : {0, 1, 2, kMaxChannels - 1}) {
      pieces.claim(layout.members_at(channel), sizeof(Member) * static_cast<size_t>(ranks));
      for (int member = 0; member < ranks; ++member) {
        for (int parity : {0, 1})
          pieces.claim(layout.inline_at(channel, member, parity), kInlineBytes);
        pieces.claim(layout.stage_at(channel, member), kStageBytes);
      }
    }
    for (int rank = 0; rank < ranks; ++rank) pieces.claim(layout.heap_at(rank), layout.heap_bytes);
    ASSERT_TRUE(pieces.are_apart_below(layout.total)) << ranks;
  }
}

TEST(Heap, GivesBackAndJoinsHoles) {
  const auto backend = lone_shm(8U << 20);
  for (int round = 0; round < 50; ++round) {
    auto a = backend->allocate(1U << 20, DType::kU8);
    auto b = backend->allocate(2U << 20, DType::kU8);
    auto c = backend->allocate(3U << 20, DType::kU8);
    std::memset(b.view().data, 7, b.view().bytes());
    a = OwnedBuffer();
    c = OwnedBuffer();
    b = OwnedBuffer();
    const auto all = backend->allocate(8U << 20, DType::kU8);  // only if nothing is lost
    EXPECT_EQ(all.as<uint8_t>()[3U << 19], 0) << "memory comes zeroed";
  }
}

TEST(Heap, FullIsAnError) {
  const auto backend = lone_shm(1U << 20);
  EXPECT_THROW(backend->allocate(2U << 20, DType::kU8), Error);
  const auto most = backend->allocate(1U << 20, DType::kU8);
  EXPECT_THROW(backend->allocate(1, DType::kU8), IoError);
}

TEST(Heap, BuffersOutliveTheCommunicator) {
  auto backend = lone_shm(1U << 20);
  const OwnedBuffer buffer = backend->allocate(1000, DType::kF32);
  backend.reset();
  for (float& value : buffer.as<float>()) value = 1;
  EXPECT_EQ(buffer.as<float>()[999], 1);
}

TEST(Bootstrap, RefusesWrongRanksMissingStoresAndMissingBackends) {
  BootstrapInfo info;
  info.rank = 2;
  info.size = 2;
  EXPECT_THROW(make_communicator(info), UsageError);
  info.rank = 0;
  EXPECT_THROW(make_communicator(info), UsageError) << "two ranks without a store";
  info.size = 1;
  info.job_settings.set("backend", "mpi", "test");
  EXPECT_THROW(make_communicator(info), UsageError) << "not under mpirun";
  info.job_settings.set("backend", "nccl", "test");
  info.job_settings.set("parts", "/nowhere", "test");
  EXPECT_THROW(make_communicator(info), UsageError) << "no such part";
}

TEST(Bootstrap, NamesTheRanksThatDoNotCome) {
  BootstrapInfo info;
  info.size = 3;
  info.store = make_memory_store();
  info.job_settings.set("start_timeout", "50ms", "test");
  try {
    make_communicator(info);
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), (std::vector<int>{1, 2}));
  }
}

}  // namespace
}  // namespace horon::shared
