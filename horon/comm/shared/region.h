#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "horon/comm/header.h"

// The layout of memory that ranks share: of one process (local) or of one host (shm). Everything
// here is plain data and atomics, valid in every process that maps it, and zero means "empty".
namespace horon::shared {

constexpr int kMaxRanks = 192;              // descriptors of all fit into one message (limit 253)
constexpr int kMaxChannels = 256;           // groups open at the same time
constexpr size_t kInlineBytes = 64U << 10;  // largest message that travels with its header
constexpr size_t kStageBytes = 4U << 20;    // window of a member whose buffers peers cannot reach

// All parties arrive; the last one lets everybody go. A sleeper waits on `epoch` as a futex.
struct Barrier {
  alignas(64) std::atomic<uint32_t> count;
  alignas(64) std::atomic<uint32_t> epoch;
  std::atomic<uint32_t> sleepers;
};

struct Member {
  // Operation number and step within it: who is behind. Written by its member alone.
  alignas(64) std::atomic<uint64_t> progress;
  alignas(64) Header headers[2];  // by parity of the operation number
};

struct ChannelControl {
  std::atomic<uint64_t> id;      // 0: free
  std::atomic<uint32_t> closed;  // members that are done with it; the last one frees the block
  Barrier arrive;
  Barrier step;
};

constexpr int kMaxBlamed = 64;

struct WorldControl {
  std::atomic<uint32_t> abort_claim;  // the first to raise it fills in the rest
  std::atomic<uint32_t> abort_kind;   // FailureKind, 0: alive; written last
  std::atomic<uint32_t> abort_count;
  std::atomic<int64_t> abort_after_ms;           // Failure::after
  std::atomic<int32_t> abort_ranks[kMaxBlamed];  // ranks of the job
  std::atomic<uint32_t> table_lock;              // guards claiming and freeing of channels
  std::atomic<uint8_t> left[kMaxRanks];          // said goodbye: its death is no surprise
  ChannelControl channels[kMaxChannels];
};

// Where things are, as a pure function of the number of ranks. Heaps, slots and stages that are
// used together are an odd number of pages apart: AMD's first-level cache tells lines apart by a
// hash of their addresses, and streams a power of two apart throw each other out of it
// (docs/adr/0003).
struct Layout {
  explicit Layout(int ranks, uint64_t heap_bytes);
  size_t members_at(int channel) const;  // Member[ranks]
  size_t inline_at(int channel, int member, int parity) const;
  size_t stage_at(int channel, int member) const;
  size_t heap_at(int rank) const;

  int ranks;
  uint64_t heap_bytes;  // of one rank, whole pages
  size_t channels_at;
  size_t channel_bytes;
  size_t heaps_at;
  size_t heap_stride;
  size_t total;
};

// True once `epoch` differs from `seen`; sleeps at most `nanoseconds`, may return early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t nanoseconds);
void futex_wake_all(std::atomic<uint32_t>& word);

}  // namespace horon::shared
