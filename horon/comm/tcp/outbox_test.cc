#include "horon/comm/tcp/outbox.h"

#include <gtest/gtest.h>

#include <vector>

namespace horon::tcp {
namespace {

constexpr uint64_t kLongFrame = 64U << 10;

struct Sent {
  explicit Sent(uint64_t bytes) : memory(bytes) {
    piece.is_send = true;
    piece.data = memory.data();
    piece.bytes = bytes;
  }
  std::vector<std::byte> memory;
  Piece piece;
};

// "flow:bytes ..." of the next record.
std::string next(Outbox& outbox, bool long_only = false) {
  Load load;
  outbox.take(load, long_only);
  EXPECT_EQ(load.frames.size(), load.pieces.size());
  std::string text;
  for (const Frame& frame : load.frames) {
    if (!text.empty()) text += " ";
    if (frame.header.kind == static_cast<uint32_t>(FrameKind::kCredit)) text += "credit ";
    if (frame.header.kind == static_cast<uint32_t>(FrameKind::kLeave)) text += "leave ";
    text += std::to_string(frame.header.flow) + ":" + std::to_string(frame.header.bytes);
  }
  return text;
}

TEST(Outbox, ShortMessagesOfAllFlowsShareARecord) {
  Outbox outbox(kLongFrame);
  Sent a(10), b(20), c(30);
  outbox.post(1, a.piece);
  outbox.post(2, b.piece);
  outbox.post(1, c.piece);
  EXPECT_EQ(next(outbox), "1:10 1:30 2:20");
  EXPECT_EQ(next(outbox), "");
}

TEST(Outbox, ShortMessagesOvertakeLongOnesOfOtherFlows) {
  Outbox outbox(kLongFrame);
  Sent large(3 * kLongFrame), small(4);
  outbox.post(1, large.piece);
  EXPECT_EQ(next(outbox), "1:65536");
  outbox.post(2, small.piece);
  EXPECT_EQ(next(outbox), "2:4");
  EXPECT_EQ(next(outbox), "1:65536");
}

TEST(Outbox, OrderIsKeptWithinAFlow) {
  Outbox outbox(kLongFrame);
  Sent large(kLongFrame + 1), small(4);
  outbox.post(1, large.piece);
  outbox.post(1, small.piece);
  EXPECT_EQ(next(outbox), "1:65536");
  EXPECT_EQ(next(outbox), "1:1");
  EXPECT_EQ(next(outbox), "1:4");
  EXPECT_EQ(large.piece.offset, 0U);
  EXPECT_EQ(small.piece.offset, kLongFrame + 1);
}

TEST(Outbox, LongMessagesOfFlowsTakeTurns) {
  Outbox outbox(kLongFrame);
  Sent a(2 * kLongFrame), b(2 * kLongFrame);
  outbox.post(1, a.piece);
  outbox.post(2, b.piece);
  std::string order;
  for (int i = 0; i < 4; ++i) order += next(outbox).substr(0, 1);
  EXPECT_EQ(order, "1212");
}

TEST(Outbox, AFlowSendsNoMoreThanItsPeerTakes) {
  Outbox outbox(kUnposted);
  Sent large(3 * kUnposted), other(8);
  outbox.post(1, large.piece);
  EXPECT_EQ(next(outbox), "1:" + std::to_string(kUnposted));
  EXPECT_EQ(next(outbox), "");
  EXPECT_FALSE(outbox.has_load(false));
  outbox.post(2, other.piece);  // the other flows continue
  EXPECT_EQ(next(outbox), "2:8");
  outbox.allow(1, kUnposted + 100);
  EXPECT_TRUE(outbox.has_load(false));
  EXPECT_EQ(next(outbox), "1:100");
  outbox.allow(1, 5);  // an older credit changes nothing
  outbox.allow(1, 4 * kUnposted);
  EXPECT_EQ(next(outbox), "1:" + std::to_string(kUnposted));
}

TEST(Outbox, OnlyTheNewestCreditOfAFlowIsToldAndFirst) {
  Outbox outbox(kLongFrame);
  Sent small(4);
  outbox.post(3, small.piece);
  outbox.credit(1, 100);
  outbox.credit(1, 200);
  outbox.credit(2, 300);
  EXPECT_EQ(next(outbox), "credit 1:0 credit 2:0 3:4");
}

TEST(Outbox, FurtherSocketsCarryLongMessagesOnly) {
  Outbox outbox(kLongFrame);
  Sent small(4), large(kLongFrame);
  outbox.post(1, small.piece);
  outbox.credit(1, 5);
  EXPECT_FALSE(outbox.has_load(true));
  EXPECT_EQ(next(outbox, true), "");
  outbox.post(2, large.piece);
  EXPECT_TRUE(outbox.has_load(true));
  EXPECT_EQ(next(outbox, true), "2:65536");
}

TEST(Outbox, SaysThatItLeavesAfterEverythingElse) {
  Outbox outbox(kLongFrame);
  Sent large(kLongFrame);
  outbox.leave();
  outbox.post(1, large.piece);
  EXPECT_EQ(next(outbox), "1:65536");
  EXPECT_EQ(next(outbox), "leave 0:0");
  EXPECT_EQ(next(outbox), "");
}

TEST(Outbox, AClosedFlowSendsNothingMore) {
  Outbox outbox(kLongFrame);
  Sent small(4);
  outbox.post(1, small.piece);
  outbox.credit(1, 5);
  outbox.close(1);
  EXPECT_FALSE(outbox.has_load(false));
}

}  // namespace
}  // namespace horon::tcp
