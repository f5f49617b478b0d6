#include "horon/comm/tcp/inbox.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "horon/base/error.h"

namespace horon::tcp {
namespace {

struct Received {
  explicit Received(uint64_t bytes) : memory(bytes) {
    piece.data = memory.data();
    piece.bytes = bytes;
  }
  std::string text() const { return {reinterpret_cast<const char*>(memory.data()), memory.size()}; }
  std::vector<std::byte> memory;
  Piece piece;
};

class InboxTest : public testing::Test {
 protected:
  static FrameHeader data(uint64_t flow, uint64_t offset, uint64_t bytes) {
    return {flow, offset, static_cast<uint32_t>(bytes), static_cast<uint32_t>(FrameKind::kData)};
  }
  // A whole frame.
  void come(uint64_t flow, uint64_t offset, const std::string& text) {
    const FrameHeader header = data(flow, offset, text.size());
    std::memcpy(inbox_.provide(header), text.data(), text.size());
    inbox_.arrived(header);
  }

  int moved_ = 0;
  std::vector<uint64_t> credits_;
  bool left_ = false;
  Inbox inbox_{{.moved = [this](Piece&) { ++moved_; },
                .credit = [this](uint64_t, uint64_t offset) { credits_.push_back(offset); },
                .leave = [this] { left_ = true; }}};
};

TEST_F(InboxTest, WhatIsPostedIsReceivedInItsPlace) {
  Received message(6);
  inbox_.post(1, message.piece);
  EXPECT_EQ(inbox_.provide(data(1, 2, 3)), message.memory.data() + 2);
  inbox_.arrived(data(1, 2, 3));
  EXPECT_FALSE(message.piece.is_done());
  come(1, 0, "ab");
  come(1, 5, "f");
  EXPECT_TRUE(message.piece.is_done());
  EXPECT_EQ(moved_, 3);
}

TEST_F(InboxTest, WhatCameBeforeItWasPostedIsKept) {
  come(1, 0, "abc");
  come(1, 3, "defgh");
  Received first(3), second(5);
  inbox_.post(1, first.piece);
  inbox_.post(1, second.piece);
  EXPECT_EQ(first.text(), "abc");
  EXPECT_EQ(second.text(), "defgh");
  EXPECT_TRUE(second.piece.is_done());
}

TEST_F(InboxTest, AFrameThatIsComingWhileItsMessageIsPostedIsMovedWhenItIsWhole) {
  std::byte* place = inbox_.provide(data(1, 0, 4));
  Received message(4);
  inbox_.post(1, message.piece);
  EXPECT_FALSE(message.piece.is_done());
  std::memcpy(place, "abcd", 4);
  inbox_.arrived(data(1, 0, 4));
  EXPECT_TRUE(message.piece.is_done());
  EXPECT_EQ(message.text(), "abcd");
}

TEST_F(InboxTest, LendsMemoryToMessagesWithoutAny) {
  come(1, 0, "abc");
  Piece first;
  first.bytes = 3;
  inbox_.post(1, first);
  EXPECT_TRUE(first.is_done());
  EXPECT_EQ(std::memcmp(first.data, "abc", 3), 0);
  Piece second;
  second.bytes = 2;
  inbox_.post(1, second);
  EXPECT_FALSE(second.is_done());
  come(1, 3, "de");
  EXPECT_TRUE(second.is_done());
  EXPECT_EQ(std::memcmp(second.data, "de", 2), 0);
}

TEST_F(InboxTest, FlowsDoNotMeet) {
  Received one(1), two(1);
  inbox_.post(1, one.piece);
  inbox_.post(2, two.piece);
  come(2, 0, "2");
  EXPECT_FALSE(one.piece.is_done());
  come(1, 0, "1");
  EXPECT_EQ(one.text() + two.text(), "12");
}

TEST_F(InboxTest, CreditIsToldWhenHalfOfItIsUsedAndNotForSmallMessages) {
  Received small(100), large(kUnposted);
  inbox_.post(1, small.piece);
  EXPECT_FALSE(inbox_.due_credit(1));
  inbox_.post(1, large.piece);
  EXPECT_EQ(inbox_.due_credit(1), 100 + 2 * kUnposted);
  EXPECT_FALSE(inbox_.due_credit(1));
}

TEST_F(InboxTest, RefusesBytesBeyondTheCredit) {
  EXPECT_THROW(inbox_.provide(data(1, kUnposted - 1, 2)), Error);
  EXPECT_THROW(inbox_.provide(data(1, ~0ULL - 1, 1000)), Error);  // past the end of numbers
  EXPECT_THROW(inbox_.provide(data(1, 0, 0)), Error);
  EXPECT_NE(inbox_.provide(data(1, kUnposted - 2, 2)), nullptr);
}

TEST_F(InboxTest, RefusesBytesThatCameAlready) {
  come(1, 0, "abcd");
  come(1, 6, "gh");
  for (const auto& [offset, bytes] :
       {std::pair<uint64_t, uint64_t>{0, 4}, {3, 1}, {3, 2}, {4, 3}, {6, 1}, {7, 5}}) {
    EXPECT_THROW(inbox_.provide(data(1, offset, bytes)), Error) << offset << " " << bytes;
  }
  come(1, 4, "ef");
  come(1, 8, "i");
  EXPECT_THROW(inbox_.provide(data(1, 8, 1)), Error);
}

TEST_F(InboxTest, RefusesAFrameAcrossTwoMessages) {
  Received first(3), second(5);
  inbox_.post(1, first.piece);
  inbox_.post(1, second.piece);
  EXPECT_THROW(inbox_.provide(data(1, 2, 2)), Error);
  come(2, 0, "abcd");
  Received half(2);
  EXPECT_THROW(inbox_.post(2, half.piece), Error);
}

TEST_F(InboxTest, ReportsCreditsAndFarewells) {
  inbox_.provide({1, 500, 0, static_cast<uint32_t>(FrameKind::kCredit)});
  inbox_.arrived({1, 500, 0, static_cast<uint32_t>(FrameKind::kCredit)});
  EXPECT_EQ(credits_, std::vector<uint64_t>{500});
  inbox_.arrived({0, 0, 0, static_cast<uint32_t>(FrameKind::kLeave)});
  EXPECT_TRUE(left_);
}

TEST_F(InboxTest, RefusesUnknownKindsAndControlFramesWithPayload) {
  EXPECT_THROW(inbox_.arrived({1, 0, 0, 77}), Error);
  EXPECT_THROW(inbox_.provide({1, 0, 4, static_cast<uint32_t>(FrameKind::kCredit)}), Error);
}

TEST_F(InboxTest, MemoryOfAFrameThatIsComingOutlivesItsFlow) {
  std::byte* place = inbox_.provide(data(1, 0, 40'000));
  inbox_.close(1);
  std::memset(place, 1, 40'000);  // AddressSanitizer looks
  inbox_.arrived(data(1, 0, 40'000));
  EXPECT_EQ(moved_, 0);
}

TEST_F(InboxTest, KeepsABoundedNumberOfBytes) {
  uint64_t flow = 0;
  const auto fill = [&] {
    for (uint64_t at = 0; at < kUnposted; at += kUnposted / 2)
      inbox_.arrived(
          (inbox_.provide(data(flow, at, kUnposted / 2)), data(flow, at, kUnposted / 2)));
  };
  for (; flow < 1024; ++flow) fill();
  EXPECT_THROW(inbox_.provide(data(flow, 0, 1)), Error);
  inbox_.close(0);  // released bytes are not counted
  ++flow;
  fill();
}

TEST_F(InboxTest, KeepsABoundedNumberOfFlows) {
  for (uint64_t flow = 0; flow < (1U << 16); ++flow) come(flow, 0, "x");
  EXPECT_THROW(inbox_.provide(data(1U << 16, 0, 1)), Error);
}

}  // namespace
}  // namespace horon::tcp
