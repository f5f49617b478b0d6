#include "horon/comm/shared/region.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace horon::shared {
namespace {

constexpr size_t kPage = 4096;
// Address bits 12 to 27 take part in the hash: in a stride of a multiple of this and one page no
// higher bit undoes what the page does.
constexpr size_t kHashed = 1U << 28;
constexpr size_t kInlineStride = 2 * kInlineBytes + kPage;  // 33 pages
constexpr size_t kStageStride = kStageBytes + kPage;        // 1025 pages

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t member_bytes(int ranks) {
  return round_up(sizeof(Member) * static_cast<size_t>(ranks), kPage);
}

}  // namespace

RegionLayout::RegionLayout(int rank_count, uint64_t heap)
    : ranks(rank_count),
      heap_bytes(round_up(heap, kPage)),
      channels_at(round_up(sizeof(RegionControl), kPage)),
      channel_bytes(member_bytes(rank_count) +
                    static_cast<size_t>(rank_count) * (kInlineStride + kStageStride)),
      heaps_at(channels_at + kMaxChannels * channel_bytes),
      heap_stride(heap == 0 ? 0 : round_up(heap, kHashed) + kPage),
      total(heaps_at + static_cast<size_t>(rank_count) * heap_stride) {}

size_t RegionLayout::members_at(int channel) const {
  return channels_at + static_cast<size_t>(channel) * channel_bytes;
}

size_t RegionLayout::inline_at(int channel, int member, int parity) const {
  return members_at(channel) + member_bytes(ranks) + static_cast<size_t>(member) * kInlineStride +
         static_cast<size_t>(parity) * kInlineBytes;
}

size_t RegionLayout::stage_at(int channel, int member) const {
  return inline_at(channel, ranks, 0) + static_cast<size_t>(member) * kStageStride;
}

size_t RegionLayout::heap_at(int rank) const {
  return heaps_at + static_cast<size_t>(rank) * heap_stride;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t nanoseconds) {
  const timespec timeout = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 0x7fffffff, nullptr, nullptr,
          0);
}

}  // namespace horon::shared
