#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horon/comm/types.h"

// What a rank is about to do, told to all others before any payload moves. All ranks see all
// headers and reach the same verdict: go, or the same UsageError everywhere.
namespace horon {

constexpr uint64_t kNoAddress = ~0ULL;
constexpr uint64_t kAnyCount = ~0ULL;

struct Header {
  uint64_t sequence = 0;  // number of this operation in its group
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  int32_t root = -1;
  uint64_t count = 0;                 // elements that this rank brings
  uint64_t out_count = kAnyCount;     // elements that it has room for
  uint64_t layout = 0;                // hash of what must be equal besides: counts, shard total
  uint64_t address = kNoAddress;      // of the input, if peers can reach it
  uint64_t out_address = kNoAddress;  // of the output, likewise
  uint32_t blob_bytes = 0;            // details that follow: counts, tree nodes, members of a group
  uint32_t items = 1;                 // operations in a group
  uint64_t name_hash = 0;
  uint32_t policy = 0;     // of the table of algorithms: they must choose alike
  uint8_t is_inline = 0;   // the payload came along
  uint8_t is_invalid = 0;  // the request makes no sense; `name` says why
  uint8_t on_device = 0;   // the payload goes from device to device, not through the host
  uint8_t reserved = 0;
  uint32_t away_us = 0;  // since this rank's last operation ended: how long it did other things
  char name[44] = {};    // beginning of the name, for messages
};
static_assert(sizeof(Header) == 128);

void set_name(Header& header, const std::string& name);

// "all_reduce sum f32[256] 'fc.weight'".
std::string describe(const Header& header);

struct Agreement {
  std::vector<int> active;  // members that contribute: all that have not joined
  std::string mismatch;     // empty when all agree; else the same text on every rank
};

// Pure: headers[i] belongs to member i, whose rank in messages is ranks[i].
Agreement agree(std::span<const Header> headers, std::span<const int> ranks);

// Pure check of an all_to_all (a member without receives takes what comes): sends[i][j] elements go
// from member i to member j, who expects receives[j][i]. Empty when all agree.
std::string check_all_to_all(const std::vector<std::vector<uint64_t>>& sends,
                             const std::vector<std::vector<uint64_t>>& receives,
                             std::span<const int> active, std::span<const int> ranks);

}  // namespace horon
