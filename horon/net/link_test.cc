#include "horon/net/link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <set>

#include "horon/base/error.h"
#include "horon/net/secret.h"

namespace horon {
namespace {

std::string bytes_of(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(static_cast<char>(value));
  return text;
}

TEST(Seal, DerivesKeysAsRfc5869) {  // its first test case, 32 of 42 bytes
  const std::string info = bytes_of({0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9});
  std::string salt;
  for (int i = 0; i <= 12; ++i) salt.push_back(static_cast<char>(i));
  EXPECT_EQ(to_hex(derive_key(std::string(22, '\x0b'), salt, info)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

struct Record {
  std::string body;
  std::byte tag[Seal::kTagBytes];
};

Record seal(Seal& sealer, const std::string& text, uint32_t word = 7) {
  Record record{std::string(text.size(), '\0'), {}};
  sealer.begin(word);
  sealer.update(text.data(), record.body.data(), text.size());
  sealer.finish(record.tag);
  return record;
}

bool opens(Seal& opener, const Record& record, const std::string& text, uint32_t word = 7) {
  std::string opened(record.body.size(), '\0');
  opener.begin(word);
  opener.update(record.body.data(), opened.data(), opened.size());
  return opener.verify(record.tag) && opened == text;
}

const std::string kSecret(32, 's');

TEST(Seal, OpensRecordsInTheirOrder) {
  Seal sealer(Seal::Way::kSeal, kSecret, 1000);
  Seal opener(Seal::Way::kOpen, kSecret, 1000);
  for (const size_t bytes : {0, 1, 15, 16, 17, 5000}) {
    const std::string text(bytes, 'x');
    EXPECT_TRUE(opens(opener, seal(sealer, text), text)) << bytes;
  }
}

TEST(Seal, EveryChangedBitIsNoticed) {
  const std::string text = "twenty bytes of text";
  for (size_t bit = 0; bit < 8 * (sizeof(uint32_t) + text.size() + Seal::kTagBytes); ++bit) {
    Seal sealer(Seal::Way::kSeal, kSecret, 1000);
    Seal opener(Seal::Way::kOpen, kSecret, 1000);
    Record record = seal(sealer, text);
    uint32_t word = 7;
    const auto flip = static_cast<uint8_t>(1U << (bit % 8));
    if (bit < 32) {
      word ^= 1U << bit;
    } else if (bit / 8 - 4 < text.size()) {
      record.body[bit / 8 - 4] = static_cast<char>(record.body[bit / 8 - 4] ^ flip);
    } else {
      record.tag[bit / 8 - 4 - text.size()] ^= std::byte{flip};
    }
    EXPECT_FALSE(opens(opener, record, text, word)) << bit;
  }
}

TEST(Seal, EqualTextsAreNeverSealedAlike) {
  Seal sealer(Seal::Way::kSeal, kSecret, 3);
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) seen.insert(seal(sealer, "the same text").body);
  EXPECT_EQ(seen.size(), 20U);
}

TEST(Seal, RefusesRecordsThatWereRepeatedLeftOutOrSwapped) {
  const auto two = [](Seal& sealer) {
    return std::vector<Record>{seal(sealer, "one"), seal(sealer, "two")};
  };
  {
    Seal sealer(Seal::Way::kSeal, kSecret, 1000);
    Seal opener(Seal::Way::kOpen, kSecret, 1000);
    const auto records = two(sealer);
    EXPECT_TRUE(opens(opener, records[0], "one"));
    EXPECT_FALSE(opens(opener, records[0], "one"));
  }
  Seal sealer(Seal::Way::kSeal, kSecret, 1000);
  Seal opener(Seal::Way::kOpen, kSecret, 1000);
  EXPECT_FALSE(opens(opener, two(sealer)[1], "two"));
}

TEST(Seal, ReplacesItsKeyAtTheSameRecordOnBothSides) {
  Seal sealer(Seal::Way::kSeal, kSecret, 3);
  Seal opener(Seal::Way::kOpen, kSecret, 3);
  Seal late(Seal::Way::kOpen, kSecret, 4);
  for (int i = 0; i < 10; ++i) {
    const Record record = seal(sealer, "text");
    EXPECT_TRUE(opens(opener, record, "text")) << i;
    EXPECT_EQ(opens(late, record, "text"), i / 3 == i / 4) << i;
  }
}

// Keeps what came, by flow.
class Kept final : public FrameSink {
 public:
  std::byte* provide(const FrameHeader& header) override {
    coming_.assign(header.bytes, std::byte{0});
    return coming_.data();
  }
  void arrived(const FrameHeader& header) override {
    EXPECT_EQ(header.bytes, coming_.size());
    frames.emplace_back(header, coming_);
  }
  std::vector<std::pair<FrameHeader, std::vector<std::byte>>> frames;

 private:
  std::vector<std::byte> coming_;
};

std::pair<Fd, Fd> socket_pair(int buffer_bytes = 0) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  for (const int fd : fds) {
    if (buffer_bytes != 0)
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
  }
  return {Fd(fds[0]), Fd(fds[1])};
}

std::optional<LinkSecrets> secrets(bool is_private, bool first, uint64_t records_per_key = 5) {
  if (!is_private) return std::nullopt;
  const std::string one(32, '1');
  const std::string two(32, '2');
  return LinkSecrets{first ? one : two, first ? two : one, records_per_key};
}

std::vector<std::byte> pattern(size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761U + 1;
  for (std::byte& byte : data) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

class LinkTest : public testing::TestWithParam<bool> {};  // private or plain

TEST_P(LinkTest, CarriesFramesOfEverySizeThroughSmallSockets) {
  auto [one, two] = socket_pair(4096);
  Link from(std::move(one), secrets(GetParam(), true));
  Link to(std::move(two), secrets(GetParam(), false));
  const size_t short_most = Link::kShortBytes - Link::kOverhead;
  const std::vector<std::vector<size_t>> records = {
      {0}, {1}, {3, 0, 500, 16}, {short_most}, {short_most + 1}, {100'000}, {Link::kMostBytes},
      {4}};
  Kept kept;
  uint64_t flow = 0;
  std::vector<std::vector<std::byte>> sent;
  for (const auto& sizes : records) {
    std::vector<Frame> frames;
    const size_t first = sent.size();
    for (const size_t bytes : sizes) sent.push_back(pattern(bytes, static_cast<int>(sent.size())));
    for (size_t i = first; i < sent.size(); ++i) {
      frames.push_back(
          {{++flow, 3 * flow, static_cast<uint32_t>(sent[i].size()), 9}, sent[i].data()});
    }
    from.begin(frames);
    while (!from.send_some()) to.receive(kept, 1U << 20);
  }
  while (kept.frames.size() < sent.size()) ASSERT_GT(to.receive(kept, 1U << 20), 0U);
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(kept.frames[i].first.flow, i + 1);
    EXPECT_EQ(kept.frames[i].first.offset, 3 * (i + 1));
    EXPECT_EQ(kept.frames[i].second, sent[i]) << i;
  }
}

TEST_P(LinkTest, RefusesFramesThatDoNotFitIntoARecord) {
  auto [one, two] = socket_pair();
  Link link(std::move(one), secrets(GetParam(), true));
  const auto data = pattern(Link::kMostBytes + 1, 1);
  const Frame large{{1, 0, static_cast<uint32_t>(data.size()), 1}, data.data()};
  const Frame half{{1, 0, Link::kShortBytes / 2, 1}, data.data()};
  EXPECT_THROW(link.begin({}), Error);
  EXPECT_THROW(link.begin(std::vector<Frame>{large}), Error);
  EXPECT_THROW(link.begin(std::vector<Frame>{half, half}), Error);
}

TEST_P(LinkTest, TheEndOfTheConnectionIsAnError) {
  auto [one, two] = socket_pair();
  Link link(std::move(one), secrets(GetParam(), true));
  two.reset();
  Kept kept;
  EXPECT_THROW(link.receive(kept, 1000), IoError);
  const Frame frame{{1, 0, 0, 1}, nullptr};
  link.begin(std::vector<Frame>{frame});
  EXPECT_THROW(link.send_some(), IoError);
}

INSTANTIATE_TEST_SUITE_P(Wires, LinkTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "private" : "plain"; });

// The bytes of these records on a private connection.
std::vector<std::byte> recorded(const std::vector<size_t>& sizes) {
  auto [one, two] = socket_pair(1 << 20);
  Link from(std::move(one), secrets(true, true));
  std::vector<std::byte> all;
  for (const size_t bytes : sizes) {
    const auto data = pattern(bytes, static_cast<int>(bytes));
    const Frame frame{{1, 0, static_cast<uint32_t>(bytes), 1}, data.data()};
    from.begin(std::vector<Frame>{frame});
    while (!from.send_some()) {
    }
    std::byte piece[1 << 16];
    for (ssize_t got = 0; (got = read(two.get(), piece, sizeof(piece))) > 0;)
      all.insert(all.end(), piece, piece + got);
  }
  return all;
}

// What a private link makes of these bytes and the end of the connection behind them; true if it
// threw, as it must, having passed on only frames that were sent.
bool is_refused(const std::vector<std::byte>& bytes, Kept& kept) {
  auto [one, two] = socket_pair(1 << 20);
  Link to(std::move(one), secrets(true, false));
  EXPECT_EQ(write(two.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  two.reset();
  try {
    to.receive(kept, 1U << 24);
  } catch (const IoError& error) {  // the end came before the record was whole
    return std::string(error.what()).find("closed") != std::string::npos;
  } catch (const Error&) {
    return true;
  }
  return false;
}

TEST(PrivateLink, DeliversNothingThatWasChanged) {
  const auto good = recorded({10, 20'000});
  size_t checked = 0;
  for (size_t bit = 0; bit < 8 * good.size(); bit += bit < 1000 ? 1 : 977) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    Kept kept;
    ASSERT_TRUE(is_refused(bad, kept)) << bit;
    const size_t first_record = 4 + Link::kOverhead + 10 + Seal::kTagBytes;
    ASSERT_EQ(kept.frames.size(), bit / 8 < first_record ? 0U : 1U) << bit;
    ++checked;
  }
  EXPECT_GT(checked, 1100U);
}

TEST(PrivateLink, DeliversNothingThatWasRepeatedOrSwapped) {
  const auto both = recorded({10, 30});
  const auto first = both.begin() + 4 + Link::kOverhead + 10 + Seal::kTagBytes;
  std::vector<std::byte> twice(both.begin(), first);
  twice.insert(twice.end(), both.begin(), first);
  Kept kept;
  EXPECT_TRUE(is_refused(twice, kept));
  EXPECT_EQ(kept.frames.size(), 1U);
  std::vector<std::byte> swapped(first, both.end());
  swapped.insert(swapped.end(), both.begin(), first);
  Kept none;
  EXPECT_TRUE(is_refused(swapped, none));
  EXPECT_TRUE(none.frames.empty());
}

TEST(PrivateLink, BytesOnTheWireDoNotShowThePayload) {
  const auto wire = recorded({4096});
  const auto payload = pattern(4096, 4096);
  for (size_t at = 0; at + 16 < payload.size(); at += 16) {
    EXPECT_EQ(memmem(wire.data(), wire.size(), payload.data() + at, 16), nullptr);
  }
}

TEST(PrivateLink, OurOwnRecordsDoNotComeBack) {  // reflected: a direction has its own key
  auto [one, two] = socket_pair();
  Link link(std::move(one), secrets(true, true));
  const Frame frame{{1, 0, 0, 1}, nullptr};
  link.begin(std::vector<Frame>{frame});
  ASSERT_TRUE(link.send_some());
  std::byte piece[100];
  const ssize_t got = read(two.get(), piece, sizeof(piece));
  ASSERT_EQ(write(two.get(), piece, static_cast<size_t>(got)), got);
  Kept kept;
  EXPECT_THROW(link.receive(kept, 1000), Error);
  EXPECT_TRUE(kept.frames.empty());
}

TEST(PrivateLink, AForkedChildNeverSeals) {
  auto [one, two] = socket_pair();
  Link link(std::move(one), secrets(true, true));
  const Frame frame{{1, 0, 0, 1}, nullptr};
  EXPECT_EXIT(
      {
        try {
          link.begin(std::vector<Frame>{frame});
        } catch (const Error&) {
          _exit(3);
        }
        _exit(0);
      },
      testing::ExitedWithCode(3), "");
}

TEST(PlainLink, RefusesSizesThatNoPeerSends) {
  const uint32_t long_bit = 1U << 31;
  const auto most = static_cast<uint32_t>(Link::kOverhead + Link::kMostBytes);
  for (const uint32_t word : {0U, 1U, 23U, static_cast<uint32_t>(Link::kShortBytes) + 1, long_bit,
                              long_bit | 100U, long_bit | (most + 1), ~0U}) {
    auto [one, two] = socket_pair();
    Link to(std::move(one), std::nullopt);
    ASSERT_EQ(write(two.get(), &word, sizeof(word)), 4);
    Kept kept;
    EXPECT_THROW(to.receive(kept, 1000), Error) << word;
  }
}

}  // namespace
}  // namespace horon
