#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horon/comm/types.h"

// What a rank is about to do, sent to all others before any payload moves. All ranks see all
// headers and reach the same result: proceed, or the same UsageError everywhere.
namespace horon {

// No address that peers can access; any number of elements.
constexpr uint64_t kNoAddress = ~0ULL;
constexpr uint64_t kAnyCount = ~0ULL;

// The header of one operation of one rank, 128 bytes. Ranks of one version exchange it as plain
// bytes.
struct Header {
  uint64_t sequence = 0;  // number of this operation in its communicator
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  int32_t root = -1;
  uint64_t count = 0;              // elements that this rank contributes
  uint64_t out_count = kAnyCount;  // elements that fit into its output
  uint64_t layout = 0;  // hash of further values that must be equal: counts, number of shards
  uint64_t address = kNoAddress;      // of the input, if peers can access it
  uint64_t out_address = kNoAddress;  // of the output, likewise
  uint32_t blob_bytes = 0;  // size of the details that follow: counts, tree nodes, items of a group
  uint32_t items = 1;       // operations in a group
  uint64_t name_hash = 0;
  uint32_t policy = 0;     // fingerprint of the algorithm table: ranks must choose the same
  uint8_t is_inline = 0;   // the payload is included
  uint8_t is_invalid = 0;  // the request is invalid; `name` says why
  uint8_t on_device = 0;   // the payload goes from device to device, without the host
  uint8_t reserved = 0;
  uint32_t away_us = 0;     // microseconds since this rank's last operation ended
  uint32_t told_bytes = 0;  // that follow the header, on transports that do not know it beforehand
  char name[40] = {};       // beginning of the name, for messages
};
static_assert(sizeof(Header) == 128);

// Stores the hash and the beginning of the name.
void set_name(Header& header, const std::string& name);

// "all_reduce sum f32[256] 'fc.weight'".
std::string describe(const Header& header);

// The result of comparing all headers, the same on every rank.
struct HeaderVerdict {
  std::vector<int> active;  // members that contribute: all that have not joined
  std::string mismatch;     // empty when all agree; else the same text on every rank
};

// Pure: headers[i] belongs to member i, who is rank ranks[i] in messages.
HeaderVerdict agree(std::span<const Header> headers, std::span<const int> ranks);

// What many ranks exchange in place of their headers: 24 bytes that any two ranks can combine, in
// any order and more than once, so that after log2 n rounds all have the same.
struct HeaderDigest {
  uint64_t fingerprint = 0;    // of everything that must be equal
  uint32_t needs_headers = 0;  // something differs, or the operation depends on each rank's header
  uint32_t least_away_us = 0;
  uint32_t most_away_us = 0;
  int32_t slowest = 0;  // the member who was away longest
};
static_assert(sizeof(HeaderDigest) == 24);

// Pure.
HeaderDigest digest_of(const Header& header, int member);
void combine(HeaderDigest& to, const HeaderDigest& other);
// The headers of all members if the digest of all needs none of them: those of the same operation.
void fill_headers(std::span<Header> headers, const Header& mine, const HeaderDigest& all);

// Pure check of an all_to_all (a member without receives accepts any): sends[i][j] elements go from
// member i to member j, which expects receives[j][i]. Empty if all agree.
std::string check_all_to_all(const std::vector<std::vector<uint64_t>>& sends,
                             const std::vector<std::vector<uint64_t>>& receives,
                             std::span<const int> active, std::span<const int> ranks);

}  // namespace horon
