// The start of an operation: headers and inline payloads of all members.
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/p2p/channel.h"

namespace horon {
namespace {

// A rank that waits for a waiting rank has a longer time limit, so that the one next to the culprit
// reports it.
constexpr Milliseconds kGrace{300};

// On transports that take messages early: the more ranks, the more copies of it are on the way at
// the same time.
size_t early_bytes(size_t members) {
  if (members <= 2) return 64U << 10;
  return members <= 4   ? 16U << 10
         : members <= 8 ? 4U << 10
                        : P2pChannel::kFrameBytes - sizeof(Header);
}

}  // namespace

size_t P2pChannel::inline_bytes_of(const Transport& transport, size_t members) {
  return transport.takes_early() ? early_bytes(members) : kFrameBytes - sizeof(Header);
}

std::vector<AlgorithmRow> P2pChannel::algorithms(bool takes_early) {
  using enum OpKind;
  using enum Algorithm;
  constexpr uint64_t kSmall = kFrameBytes - sizeof(Header);
  constexpr Reduction kExact = Reduction::kExact;
  std::vector<AlgorithmRow> rows;
  const auto add_inline = [&](OpKind kind, Reduction reduction = Reduction::kFast) {
    for (const int ranks : {2, 4, 8}) {
      if (!takes_early) break;
      rows.push_back({.kind = kind,
                      .algorithm = kInline,
                      .only = &kFitsHeader,
                      .most_bytes = early_bytes(static_cast<size_t>(ranks)),
                      .most_ranks = ranks,
                      .reduction = reduction});
    }
    rows.push_back({.kind = kind,
                    .algorithm = kInline,
                    .only = &kFitsHeader,
                    .most_bytes = kSmall,
                    .reduction = reduction});
  };
  add_inline(kAllReduce);
  rows.push_back(
      {.kind = kAllReduce, .algorithm = kOneShot, .most_bytes = 16U << 10, .most_ranks = 8});
  rows.push_back({.kind = kAllReduce, .algorithm = kTwoShot});
  add_inline(kAllReduce, kExact);
  rows.push_back({.kind = kAllReduce, .algorithm = kTwoShot, .reduction = kExact});
  add_inline(kReduceScatter);
  rows.push_back({.kind = kReduceScatter, .algorithm = kOneShot});
  add_inline(kAllGather);
  rows.push_back({.kind = kAllGather, .algorithm = kOneShot});
  add_inline(kBroadcast);
  rows.push_back({.kind = kBroadcast, .algorithm = kTree, .most_bytes = 64U << 10});
  rows.push_back({.kind = kBroadcast, .algorithm = kTree, .most_ranks = 2});
  rows.push_back({.kind = kBroadcast, .algorithm = kScatter});
  rows.push_back({.kind = kAllToAll, .algorithm = kOneShot});
  return rows;
}

HeaderDigest P2pChannel::combine_digests(HeaderDigest mine, Milliseconds timeout) {
  const int n = size();
  for (int distance = 1; distance < n; distance *= 2, timeout += kGrace) {
    HeaderDigest theirs;
    exchange({to((index_ + distance) % n, &mine, sizeof(mine)),
              from((index_ + n - distance) % n, &theirs, sizeof(theirs))},
             timeout);
    combine(mine, theirs);
  }
  return mine;
}

void P2pChannel::arrive(const Header& header, std::span<const std::byte> inline_data,
                        Milliseconds timeout) {
  headers_[static_cast<size_t>(index_)] = header;
  if (size() >= kMany) {
    const HeaderDigest all = combine_digests(digest_of(header, index_), timeout);
    if (all.needs_headers == 0) return fill_headers(headers_, header, all);
  }
  transport_->takes_early() ? arrive_early(header, inline_data, timeout)
                            : arrive_in_frames(header, inline_data, timeout);
  for (int member = 0; member < size(); ++member)
    std::memcpy(&headers_[member], frame(member), sizeof(Header));
}

void P2pChannel::arrive_in_frames(const Header& header, std::span<const std::byte> inline_data,
                                  Milliseconds timeout) {
  std::byte* mine = frame(index_);
  headers_[index_] = header;
  std::memcpy(mine, &header, sizeof(header));
  if (!inline_data.empty())
    std::memcpy(mine + sizeof(header), inline_data.data(), inline_data.size());
  std::vector<Message> messages;
  for (int member = 0; member < size(); ++member) {
    inline_data_[member] = frame(member) + sizeof(Header);
    if (member == index_) continue;
    messages.push_back(to(member, mine, kFrameBytes));
    messages.push_back(from(member, frame(member), kFrameBytes));
  }
  exchange(messages, timeout);
}

void P2pChannel::arrive_early(const Header& header, std::span<const std::byte> inline_data,
                              Milliseconds timeout) {
  Header& mine = headers_[index_];
  mine = header;
  mine.told_bytes = static_cast<uint32_t>(inline_data.size());
  std::memcpy(frame(index_), &mine, sizeof(mine));
  inline_data_[index_] = inline_data.data();
  std::vector<Message> messages;
  std::vector<int> source;  // by message: the member whose header it is; -1: none; or its payload
  for (int member = 0; member < size(); ++member) {
    if (member == index_) continue;
    messages.push_back(to(member, frame(index_), sizeof(Header)));
    if (mine.told_bytes != 0) messages.push_back(to(member, inline_data.data(), mine.told_bytes));
    messages.push_back(from(member, frame(member), sizeof(Header)));
    source.resize(messages.size(), -1);
    source.back() = member;
  }
  if (messages.empty()) return;
  const size_t headers = messages.size();
  const auto received = [&](size_t index, const void* data, std::vector<Message>& more) {
    const int member = source[index];
    if (index >= headers) {
      inline_data_[member] = static_cast<const std::byte*>(data);
      return;
    }
    Header theirs;
    std::memcpy(&theirs, data, sizeof(theirs));
    if (theirs.told_bytes > inline_bytes_)
      throw Error("a peer announced more bytes than fit", ExitCode::kPeer);
    inline_data_[member] = nullptr;
    if (theirs.told_bytes == 0) return;
    more.push_back(from(member, nullptr, theirs.told_bytes));
    source.push_back(member);
  };
  transport_->exchange({.messages = messages,
                        .flow = id_,
                        .timeout = timeout,
                        .doing = [this] { return describe(headers_[index_]); },
                        .received = received});
}

const std::byte* P2pChannel::inline_data(int member) const { return inline_data_[member]; }

}  // namespace horon
