#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "horon/comm/engine/header.h"

// The layout of memory shared by ranks of one process (local) or of one host (shm). Everything here
// is plain data and atomics, valid in every process that maps it; zero means "empty".
namespace horon::shared {

constexpr int kMaxRanks = 192;              // all descriptors fit into one message (limit 253)
constexpr int kMaxChannels = 256;           // communicators open at the same time
constexpr size_t kInlineBytes = 64U << 10;  // largest message sent with its header
constexpr size_t kStageBytes = 4U << 20;    // window of a member whose buffers peers cannot access

// A barrier: the last party to arrive releases the others. Sleepers wait on `epoch` as a futex.
struct Barrier {
  alignas(64) std::atomic<uint32_t> count;
  alignas(64) std::atomic<uint32_t> epoch;
  std::atomic<uint32_t> sleepers;
};

// One member's state in a channel.
struct Member {
  // Operation number and phase within it; shows which member is behind. Written only by this
  // member.
  alignas(64) std::atomic<uint64_t> progress;
  alignas(64) Header headers[2];  // by parity of the operation number
};

// The control block of one channel.
struct ChannelControl {
  std::atomic<uint64_t> id;      // 0: free
  std::atomic<uint32_t> closed;  // members that have closed it; the last one frees the block
  Barrier arrive;
  Barrier phase;
};

constexpr int kMaxBlamed = 64;

// The control block of the region.
struct RegionControl {
  std::atomic<uint32_t> abort_claim;  // the first to set it fills in the rest
  std::atomic<uint32_t> abort_kind;   // FailureKind, 0: alive; written last
  std::atomic<uint32_t> abort_count;
  std::atomic<int64_t> abort_after_ms;           // Failure::after
  std::atomic<int32_t> abort_ranks[kMaxBlamed];  // ranks of the job
  std::atomic<uint32_t> table_lock;              // guards allocation of channels
  std::atomic<uint8_t> left[kMaxRanks];          // closed properly: its end is not a failure
  ChannelControl channels[kMaxChannels];
};

// Offsets of everything, as a pure function of the number of ranks. Heaps, slots and stages that
// are used together are an odd number of pages apart: AMD's first-level cache selects lines by a
// hash of their addresses, and streams a power of two apart evict each other (docs/adr/0003).
struct RegionLayout {
  explicit RegionLayout(int ranks, uint64_t heap_bytes);
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
