#include "horon/comm/engine/header.h"

#include <gtest/gtest.h>

#include "horon/comm/request.h"
#include "horon/comm/topology.h"

namespace horon {
namespace {

Header all_reduce_of(uint64_t count, DType dtype = DType::kF32) {
  Header header;
  header.kind = OpKind::kAllReduce;
  header.count = count;
  header.dtype = dtype;
  return header;
}

const std::vector<int> kRanks = {0, 1, 5};

TEST(Agree, EqualRequestsGiveNoMismatchAndAllAreActive) {
  const std::vector<Header> headers(3, all_reduce_of(7));
  const HeaderVerdict verdict = agree(headers, kRanks);
  EXPECT_EQ(verdict.mismatch, "");
  EXPECT_EQ(verdict.active, (std::vector<int>{0, 1, 2}));
}

TEST(Agree, NamesWhoAskedForWhat) {
  std::vector<Header> headers(3, all_reduce_of(256));
  headers[2] = all_reduce_of(256, DType::kI32);
  EXPECT_EQ(agree(headers, kRanks).mismatch,
            "ranks requested different operations: ranks 0, 1: all_reduce sum f32[256]; rank 5: "
            "all_reduce sum "
            "i32[256]; make every rank call the same, in the same order");
}

TEST(Agree, SeesEveryDifference) {
  const auto differs = [](const std::function<void(Header&)>& change) {
    std::vector<Header> headers(3, all_reduce_of(8));
    change(headers[1]);
    return !agree(headers, kRanks).mismatch.empty();
  };
  EXPECT_TRUE(differs([](Header& h) { h.kind = OpKind::kBroadcast; }));
  EXPECT_TRUE(differs([](Header& h) { h.count = 9; }));
  EXPECT_TRUE(differs([](Header& h) { h.op = ReduceOp::kMax; }));
  EXPECT_TRUE(differs([](Header& h) { h.reduction = Reduction::kExact; }));
  EXPECT_TRUE(differs([](Header& h) { set_name(h, "b"); }));
  EXPECT_TRUE(differs([](Header& h) { h.layout = 1; }));
  EXPECT_TRUE(differs([](Header& h) { h.policy = 1; }));
  EXPECT_TRUE(differs([](Header& h) { h.on_device = 1; }));
  EXPECT_TRUE(differs([](Header& h) { h.is_invalid = 1; }));
  EXPECT_FALSE(differs([](Header& h) { h.address = 4096; }));
}

// Members' digests, combined as in rounds: with the one at some distance before, doubling.
std::vector<HeaderDigest> after_rounds(const std::vector<Header>& headers) {
  const size_t n = headers.size();
  std::vector<HeaderDigest> all;
  for (size_t i = 0; i < n; ++i) all.push_back(digest_of(headers[i], static_cast<int>(i)));
  for (size_t distance = 1; distance < n; distance *= 2) {
    const auto before = all;
    for (size_t i = 0; i < n; ++i) combine(all[i], before[(i + n - distance) % n]);
  }
  return all;
}

TEST(Digest, TellsEveryMemberWhetherAllHeadersAreEqual) {
  for (const size_t n : {2, 16, 17, 100}) {
    std::vector<Header> headers(n, all_reduce_of(8));
    headers[n / 2].away_us = 700;
    for (const HeaderDigest& all : after_rounds(headers)) {
      EXPECT_EQ(all.needs_headers, 0U);
      EXPECT_EQ(all.slowest, static_cast<int>(n / 2));
      std::vector<Header> filled(n);
      fill_headers(filled, headers[0], all);
      EXPECT_EQ(agree(filled, std::vector<int>(n)).mismatch, "");
      EXPECT_EQ(filled[n / 2].away_us, 700U);
      EXPECT_EQ(filled[0].away_us, n == 2 ? 0U : filled[n - 1].away_us);
    }
  }
}

// Whatever agree() must see, or the operation itself.
TEST(Digest, AsksForHeadersIfAnyMembersIsSpecial) {
  const auto asks = [](const std::function<void(Header&)>& change) {
    std::vector<Header> headers(17, all_reduce_of(8));
    change(headers[5]);
    const auto all = after_rounds(headers);
    return std::all_of(all.begin(), all.end(),
                       [](const HeaderDigest& one) { return one.needs_headers != 0; });
  };
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kJoin, OpKind::kDeviate, OpKind::kGroup})
    EXPECT_TRUE(asks([&](Header& h) { h.kind = kind; }));
  EXPECT_TRUE(asks([](Header& h) { h.count = 9; }));
  EXPECT_TRUE(asks([](Header& h) { h.dtype = DType::kF64; }));
  EXPECT_TRUE(asks([](Header& h) { h.op = ReduceOp::kMax; }));
  EXPECT_TRUE(asks([](Header& h) { h.root = 1; }));
  EXPECT_TRUE(asks([](Header& h) { h.items = 2; }));
  EXPECT_TRUE(asks([](Header& h) { h.reduction = Reduction::kExact; }));
  EXPECT_TRUE(asks([](Header& h) { set_name(h, "b"); }));
  EXPECT_TRUE(asks([](Header& h) { h.layout = 1; }));
  EXPECT_TRUE(asks([](Header& h) { h.policy = 1; }));
  EXPECT_TRUE(asks([](Header& h) { h.on_device = 1; }));
  EXPECT_TRUE(asks([](Header& h) { h.is_invalid = 1; }));
  EXPECT_TRUE(asks([](Header& h) { h.is_inline = 1; }));
  EXPECT_TRUE(asks([](Header& h) { h.blob_bytes = 8; }));
  EXPECT_FALSE(asks([](Header& h) { h.address = 4096; }));
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kAllToAll}) {
    std::vector<Header> headers(16, all_reduce_of(8));
    for (Header& header : headers) header.kind = kind;
    EXPECT_EQ(after_rounds(headers)[3].needs_headers, 1U);
  }
}

TEST(Agree, JoinedRanksAreLeftOut) {
  std::vector<Header> headers(3, all_reduce_of(8));
  headers[0] = Header{};
  headers[0].kind = OpKind::kJoin;
  EXPECT_EQ(agree(headers, kRanks).active, (std::vector<int>{1, 2}));
  EXPECT_EQ(agree(headers, kRanks).mismatch, "");
}

TEST(Agree, ABroadcastNeedsItsRoot) {
  std::vector<Header> headers(3);
  for (Header& header : headers) header = {.kind = OpKind::kBroadcast, .root = 2};
  EXPECT_EQ(agree(headers, kRanks).mismatch, "");
  headers[2].kind = OpKind::kJoin;
  EXPECT_NE(agree(headers, kRanks).mismatch.find("the root, rank 5, has joined"),
            std::string::npos);
}

TEST(Agree, AGatherNeedsRoomForAll) {
  std::vector<Header> headers(3);
  for (size_t i = 0; i < 3; ++i)
    headers[i] = {.kind = OpKind::kAllGather, .count = i, .out_count = 3};
  EXPECT_EQ(agree(headers, kRanks).mismatch, "");
  headers[1].out_count = 4;
  EXPECT_EQ(agree(headers, kRanks).mismatch,
            "all_gather: the ranks bring 3 elements together, rank 1 has room for 4");
}

TEST(Agree, AGarbledHeaderIsOnlyAMismatch) {
  std::vector<Header> headers(3, all_reduce_of(8));
  std::fill_n(reinterpret_cast<unsigned char*>(&headers[1]), sizeof(Header), 0xff);
  EXPECT_NE(agree(headers, kRanks).mismatch, "");
}

TEST(AllToAll, ComparesBothSides) {
  const std::vector<std::vector<uint64_t>> sends = {{1, 2}, {3, 4}};
  const std::vector<std::vector<uint64_t>> receives = {{1, 3}, {2, 4}};
  const std::vector<int> both = {0, 1};
  EXPECT_EQ(check_all_to_all(sends, receives, both, both), "");
  EXPECT_EQ(check_all_to_all(sends, {{1, 3}, {5, 4}}, both, both),
            "all_to_all: rank 0 sends 2 elements to rank 1, which expects 5");
  const std::vector<int> only_second = {1};
  EXPECT_EQ(check_all_to_all(sends, receives, only_second, both),
            "all_to_all: rank 1 expects 2 elements from rank 0, which has joined");
}

TEST(Requests, AreCheckedBeforeAnybodyIsTold) {
  std::vector<float> data(4);
  const auto wrong = [](const Request& request) { return check_request(request, 0, 2); };
  EXPECT_EQ(wrong(Request::all_reduce(view_of(data))), "");
  EXPECT_NE(wrong(Request::broadcast(view_of(data), 2)), "");
  EXPECT_NE(wrong(Request::broadcast(view_of(data), -1)), "");
  EXPECT_NE(wrong(Request::reduce_scatter(view_of(data), view_of(data), {1, 2})), "");
  EXPECT_NE(wrong(Request::reduce_scatter(view_of(data), view_of(data), {2, 2})), "");
  EXPECT_EQ(wrong(Request::reduce_scatter(view_of(data), view_of(data).slice(0, 2), {2, 2})), "");
  EXPECT_NE(wrong(Request::all_to_all(view_of(data), {2, 2}, view_of(data), {1, 2})), "");
  EXPECT_NE(wrong(Request::all_reduce({nullptr, 3, DType::kF32, {}})), "");
  const BufferView half{data.data(), 4, DType::kF16, {}};
  EXPECT_NE(wrong(Request::all_reduce(half, {.reduction = Reduction::kExact})), "");
  const BufferView flags{data.data(), 4, DType::kBool, {}};
  EXPECT_NE(wrong(Request::all_reduce(flags, {.op = ReduceOp::kAverage})), "");
  EXPECT_NE(wrong(Request::group({Request::group({})})), "");
}

TEST(Topology, NumbersHostsByTheirFirstRank) {
  const std::vector<std::string> hosts = {"b", "a", "b", "a", "c"};
  const Topology topology = make_topology(3, hosts);
  EXPECT_EQ(topology.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {4}}));
  EXPECT_EQ(topology.local_rank, 1);
  EXPECT_EQ(topology.local_size, 2);
  EXPECT_EQ(topology.cross_rank, 1);
  EXPECT_EQ(topology.cross_size, 3);
  EXPECT_EQ(host_identity(), host_identity());
}

}  // namespace
}  // namespace horon
