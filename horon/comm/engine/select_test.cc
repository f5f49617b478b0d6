#include "horon/comm/engine/select.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "horon/base/error.h"
#include "horon/base/job_settings.h"
#include "horon/base/text.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/engine/channel.h"
#include "horon/comm/start/backends.h"
#include "horon/comm/start/meet.h"

namespace horon {
namespace {

std::vector<Published> all_published() { return published_algorithms(JobSettings()); }

AlgorithmTable table_of(const std::string& backend, const std::string& overrides = "") {
  for (const Published& one : all_published()) {
    for (const std::string& name : split(one.backends, ',')) {
      if (name == backend) return AlgorithmTable(one.rows, backend, overrides);
    }
  }
  throw Error("no such backend: " + backend);
}

std::string choice(const AlgorithmTable& table, const Situation& situation) {
  const AlgorithmRow* row = table.find(situation);
  return row == nullptr ? "none" : std::string(name_of(row->algorithm));
}

std::string choice(const std::string& backend, const Situation& situation,
                   const std::string& overrides = "") {
  return choice(table_of(backend, overrides), situation);
}

constexpr uint64_t kKb = 1U << 10;

TEST(Select, MessagesChooseBySizeAndRanks) {
  const OpKind kind = OpKind::kAllReduce;
  EXPECT_EQ(choice("gloo", {.kind = kind, .bytes = 100, .fits_header = true}), "inline");
  EXPECT_EQ(choice("gloo", {.kind = kind, .bytes = 100}), "one_shot") << "in a group";
  EXPECT_EQ(choice("gloo", {.kind = kind, .bytes = 4 * kKb, .ranks = 8}), "one_shot");
  EXPECT_EQ(choice("gloo", {.kind = kind, .bytes = 4 * kKb, .ranks = 9}), "two_shot");
  EXPECT_EQ(choice("mpi", {.kind = kind, .bytes = 17 * kKb}), "two_shot");
  const Situation exact{.kind = kind, .reduction = Reduction::kExact, .bytes = 4 * kKb};
  EXPECT_EQ(choice("gloo", exact), "two_shot");
  EXPECT_EQ(choice("gloo", {.kind = OpKind::kBroadcast, .bytes = kKb, .ranks = 4}), "tree");
  EXPECT_EQ(choice("gloo", {.kind = OpKind::kBroadcast, .bytes = 65 * kKb, .ranks = 2}), "tree");
  EXPECT_EQ(choice("gloo", {.kind = OpKind::kBroadcast, .bytes = 65 * kKb, .ranks = 3}), "scatter");
  EXPECT_EQ(choice("gloo", {.kind = OpKind::kAllToAll, .fits_header = true}), "one_shot");
}

TEST(Select, SharedMemoryChoosesByReachability) {
  const auto reduce = [](uint64_t bytes, bool reachable) {
    return choice("shm", {.bytes = bytes, .fits_header = true, .reachable = reachable});
  };
  EXPECT_EQ(reduce(8 * kKb, true), "inline");
  EXPECT_EQ(reduce(9 * kKb, true), "in_place");
  EXPECT_EQ(reduce(64 * kKb, false), "inline");
  EXPECT_EQ(reduce(65 * kKb, false), "windows");
  EXPECT_EQ(choice("shm", {.bytes = kKb}), "windows") << "in a group";
  EXPECT_EQ(choice("self", {.kind = OpKind::kAllToAll, .reachable = true}), "in_place");
}

TEST(Select, BetweenHostsOnlySmallSumsAndHugeTransposesAreFlat) {
  using enum OpKind;
  for (const OpKind kind : {kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll}) {
    for (const bool everybody : {true, false}) {
      EXPECT_EQ(choice("hier", {.kind = kind, .bytes = 1U << 20, .everybody = everybody}),
                "two_level")
          << name_of(kind);
    }
  }
  EXPECT_EQ(choice("hier", {.reduction = Reduction::kExact, .bytes = 1U << 20}), "two_level");
  EXPECT_EQ(choice("hier", {.dtype = DType::kBF16, .bytes = 1U << 20}), "two_level");
  EXPECT_EQ(choice("hier", {.bytes = 4 * kKb, .ranks = 8}), "flat");
  EXPECT_EQ(choice("hier", {.bytes = 4 * kKb, .ranks = 9}), "two_level");
  EXPECT_EQ(choice("hier", {.kind = kAllToAll, .bytes = 1U << 30}), "flat");
}

TEST(Select, NcclHasWhatItDoesAsDocumented) {
  const auto native = [](OpKind kind, DType dtype, ReduceOp op, bool everybody = true) {
    return choice("nccl", {.kind = kind,
                           .device = DeviceKind::kCuda,
                           .dtype = dtype,
                           .op = op,
                           .everybody = everybody}) == "native";
  };
  EXPECT_TRUE(native(OpKind::kAllReduce, DType::kF32, ReduceOp::kAverage));
  EXPECT_TRUE(native(OpKind::kAllReduce, DType::kI64, ReduceOp::kMax));
  EXPECT_FALSE(native(OpKind::kAllReduce, DType::kF32, ReduceOp::kSum, false)) << "one joined";
  EXPECT_FALSE(native(OpKind::kAllReduce, DType::kF32, ReduceOp::kMax)) << "NaN";
  EXPECT_FALSE(native(OpKind::kAllReduce, DType::kBF16, ReduceOp::kSum)) << "16-bit sums";
  EXPECT_FALSE(native(OpKind::kAllReduce, DType::kI32, ReduceOp::kAverage)) << "overflow";
  EXPECT_FALSE(native(OpKind::kAllReduce, DType::kI16, ReduceOp::kSum)) << "no such type";
  EXPECT_TRUE(native(OpKind::kBroadcast, DType::kBF16, ReduceOp::kSum));
  EXPECT_FALSE(native(OpKind::kAllGather, DType::kBool, ReduceOp::kSum));
  EXPECT_FALSE(native(OpKind::kAllToAll, DType::kF32, ReduceOp::kSum));
  EXPECT_EQ(choice("shm", {.device = DeviceKind::kCuda}), "none") << "through the host";
}

TEST(Select, TheOverrideGoesBeforeWhereItIsPossible) {
  const Situation small{.bytes = 100, .fits_header = true};
  const Situation large{.bytes = 1U << 20, .ranks = 20};
  EXPECT_EQ(choice("gloo", small, "all_reduce=two_shot"), "two_shot");
  EXPECT_EQ(choice("gloo", large, "all_reduce=one_shot"), "one_shot") << "beyond its limits";
  EXPECT_EQ(choice("gloo", large, "all_reduce=inline"), "two_shot") << "does not fit";
  EXPECT_EQ(choice("shm", large, "all_reduce=in_place"), "windows") << "nobody reaches it";
  EXPECT_EQ(choice("gloo", {.kind = OpKind::kBroadcast, .bytes = 1U << 20, .ranks = 4},
                   "all_reduce=two_shot, broadcast=tree"),
            "tree");
}

TEST(Select, RefusesWhatTheBackendDoesNotHave) {
  for (const char* text : {"all_reduce=magic", "all_reduce=tree", "fly=inline", "all_reduce",
                           "all_to_all=inline", "all_reduce=one_shot,all_reduce=two_shot"}) {
    EXPECT_THROW(table_of("gloo", text), UsageError) << text;
  }
  try {
    table_of("shm", "broadcast=windows,all_reduce=two_shot");
    FAIL();
  } catch (const UsageError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("shm has no all_reduce=two_shot"), std::string::npos) << said;
    EXPECT_NE(said.find("it has all_reduce=inline, all_reduce=in_place, all_reduce=windows"),
              std::string::npos)
        << said;
  }
}

TEST(Select, TheFingerprintSeesEveryDifference) {
  const std::vector<AlgorithmRow> rows = all_published()[1].rows;
  const auto print_of = [](const std::vector<AlgorithmRow>& list, const char* overrides = "") {
    return AlgorithmTable(list, "gloo", overrides).fingerprint();
  };
  const uint32_t plain = print_of(rows);
  EXPECT_EQ(plain, print_of(rows));
  const std::vector<std::function<void(std::vector<AlgorithmRow>&)>> changes = {
      [](auto& list) { list[1].most_bytes += 1; },
      [](auto& list) { list[1].most_ranks += 1; },
      [](auto& list) { list[1].only = &kReachable; },
      [](auto& list) { list[1].algorithm = Algorithm::kTwoShot; },
      [](auto& list) { list[1].device = DeviceKind::kCuda; },
      [](auto& list) { list[1].reduction = Reduction::kExact; },
      [](auto& list) { list.pop_back(); },
      [](auto& list) { std::swap(list[1], list[2]); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    std::vector<AlgorithmRow> changed = rows;
    changes[i](changed);
    EXPECT_NE(print_of(changed), plain) << "change " << i;
  }
  EXPECT_NE(print_of(rows, "all_reduce=two_shot"), plain);
  EXPECT_EQ(print_of(rows, "all_reduce=two_shot,broadcast=tree"),
            print_of(rows, "broadcast=tree, all_reduce=two_shot"));
}

// The setting's list of words is written down (settings lie below): it must be what is published.
TEST(Select, TheSettingAllowsWhatIsPublished) {
  std::set<std::string> published;
  for (const Published& one : all_published()) {
    for (const AlgorithmRow& row : one.rows) published.insert(override_of(row));
  }
  const auto allowed = job_setting_words("algorithm");
  EXPECT_EQ(std::set<std::string>(allowed.begin(), allowed.end()), published);
}

// Every situation that the lists can tell apart, more or less.
void for_situations(const std::function<void(const Situation&)>& visit) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::kAllToAll); ++kind) {
    for (int flags = 0; flags < 32; ++flags) {
      for (int ranks : {1, 2, 3, 8, 9}) {
        for (uint64_t bytes : {uint64_t{64}, 12 * kKb, 40 * kKb, 1024 * kKb, 1024 * 1024 * kKb}) {
          for (DType dtype : {DType::kF32, DType::kF16}) {
            visit({.kind = static_cast<OpKind>(kind),
                   .reduction = (flags & 1) != 0 ? Reduction::kExact : Reduction::kFast,
                   .device = (flags & 2) != 0 ? DeviceKind::kCuda : DeviceKind::kCpu,
                   .dtype = dtype,
                   .bytes = bytes,
                   .ranks = ranks,
                   .fits_header = (flags & 4) != 0,
                   .reachable = (flags & 8) != 0,
                   .everybody = (flags & 16) != 0});
          }
        }
      }
    }
  }
}

TEST(Select, EveryAlgorithmIsPublishedAndEveryRowIsChosenSomewhere) {
  std::set<Algorithm> published;
  for (const Published& one : all_published()) {
    const AlgorithmTable table(one.rows);
    std::set<const AlgorithmRow*> chosen;
    for_situations([&](const Situation& situation) { chosen.insert(table.find(situation)); });
    for (const AlgorithmRow& row : table.rows()) {
      published.insert(row.algorithm);
      EXPECT_TRUE(chosen.contains(&row)) << one.backends << ": " << override_of(row);
    }
  }
  EXPECT_EQ(published.size(), kAlgorithmCount);
}

TEST(Select, EveryBackendHasAWayForEverythingOnTheHost) {
  for (const Published& one : all_published()) {
    if (one.backends == "nccl") continue;  // it is around another one
    const AlgorithmTable table(one.rows);
    for_situations([&](const Situation& situation) {
      const bool asks =
          situation.kind != OpKind::kBarrier && situation.device == DeviceKind::kCpu &&
          (situation.reduction == Reduction::kFast || situation.kind == OpKind::kAllReduce);
      EXPECT_TRUE(!asks || table.find(situation) != nullptr) << name_of(situation.kind);
    });
  }
}

TEST(Select, PrintsWhatIsPublishedAndNothingElse) {
  JobSettings job_settings;
  job_settings.set("parts", "/nowhere", "test");
  job_settings.set("inline_bytes", "4KB", "test");
  const auto all = published_algorithms(job_settings);
  std::vector<std::string> lines = split(print_algorithms(all), '\n');
  size_t at = 1;  // behind the headline
  for (const Published& one : all) {
    ASSERT_LT(at, lines.size());
    EXPECT_EQ(lines[at].rfind(one.backends, 0), 0U) << lines[at];
    EXPECT_EQ(lines[at++].find("absent") != std::string::npos, one.backends == "nccl");
    for (const AlgorithmRow& row : one.rows) {
      ASSERT_LT(at, lines.size());
      const std::string& line = lines[at++];
      EXPECT_EQ(line.rfind(name_of(row.kind), 0), 0U) << line;
      EXPECT_NE(line.find(name_of(row.algorithm)), std::string::npos) << line;
      EXPECT_EQ(line.find("cuda") != std::string::npos, row.device == DeviceKind::kCuda) << line;
      std::vector<std::string> cells;
      if (row.most_bytes != kAnyBytes) cells.push_back(format_bytes(row.most_bytes));
      if (row.most_ranks != kAnyRanks) cells.push_back(fmt::format("<= {}", row.most_ranks));
      if (row.only != nullptr) cells.emplace_back(row.only->words);
      for (const std::string& cell : cells) EXPECT_NE(line.find(cell), std::string::npos) << line;
    }
  }
  EXPECT_EQ(lines.size(), at + 3) << "two sentences below, and nothing after the last line break";
  EXPECT_EQ(all[0].rows[0].most_bytes, 4 * kKb) << "the setting inline_bytes";
}

Topology on_hosts(const std::vector<std::string>& hosts) { return make_topology(0, hosts); }

TEST(AutoBackend, TakesNcclIfEveryRankHasAGpu) {
  const auto take = [](const std::vector<std::string>& hosts, const std::vector<int>& gpus) {
    return auto_backend(on_hosts(hosts), gpus);
  };
  EXPECT_EQ(take({"a"}, {}), "self");
  EXPECT_EQ(take({"a"}, {0}), "self");
  EXPECT_EQ(take({"a"}, {1}), "nccl");
  EXPECT_EQ(take({"a", "a"}, {1, 1}), "shm") << "NCCL refuses two ranks on one GPU";
  EXPECT_EQ(take({"a", "a"}, {2, 2}), "nccl");
  EXPECT_EQ(take({"a", "a"}, {2, 0}), "shm") << "rank 1 lacks the part";
  EXPECT_EQ(take({"a", "b"}, {0, 0}), "hier");
  EXPECT_EQ(take({"a", "b"}, {1, 1}), "nccl");
  EXPECT_EQ(take({"a", "b", "b"}, {1, 1, 1}), "hier") << "host b has two ranks and one GPU";
  EXPECT_EQ(take({"a", "b", "b"}, {1, 2, 2}), "nccl");
}

TEST(AutoBackend, RankLocationsSurviveEncoding) {
  EXPECT_EQ((RankLocation{"host", 0}.encode()), "host");
  for (const int gpus : {0, 1, 8}) {
    const RankLocation place = RankLocation::decode(RankLocation{"a host", gpus}.encode());
    EXPECT_EQ(place.host, "a host");
    EXPECT_EQ(place.gpus, gpus);
  }
  EXPECT_THROW(RankLocation::decode("host\nmany"), UsageError);
}

TEST(Cut, RangesCoverEveryElementOnce) {
  for (uint64_t count : {0ULL, 1ULL, 63ULL, 64ULL, 65ULL, 1000ULL, (1ULL << 33) + 7}) {
    for (size_t parts : {1U, 2U, 3U, 8U}) {
      const auto runs = cut_evenly(count, parts, 64);
      ASSERT_EQ(runs.size(), parts + 1);
      EXPECT_EQ(runs.front(), 0U);
      EXPECT_EQ(runs.back(), count);
      for (size_t i = 0; i < parts; ++i) EXPECT_LE(runs[i], runs[i + 1]);
    }
  }
}

}  // namespace
}  // namespace horon
