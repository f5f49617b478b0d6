#include "horon/comm/shared/region.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace horon::shared {
namespace {

constexpr size_t kPage = 4096;
size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Layout::Layout(int rank_count, uint64_t heap)
    : ranks(rank_count),
      heap_bytes(whole_pages(heap)),
      channels_at(whole_pages(sizeof(WorldControl))),
      channel_bytes(whole_pages(sizeof(Member) * static_cast<size_t>(rank_count)) +
                    static_cast<size_t>(rank_count) * (2 * kInlineBytes + kStageBytes)),
      heaps_at(channels_at + kMaxChannels * channel_bytes),
      total(heaps_at + static_cast<size_t>(rank_count) * heap_bytes) {}

size_t Layout::members_at(int channel) const {
  return channels_at + static_cast<size_t>(channel) * channel_bytes;
}

size_t Layout::inline_at(int channel, int member, int parity) const {
  return members_at(channel) + whole_pages(sizeof(Member) * static_cast<size_t>(ranks)) +
         static_cast<size_t>(2 * member + parity) * kInlineBytes;
}

size_t Layout::stage_at(int channel, int member) const {
  return inline_at(channel, ranks, 0) + static_cast<size_t>(member) * kStageBytes;
}

size_t Layout::heap_at(int rank) const { return heaps_at + static_cast<size_t>(rank) * heap_bytes; }

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t nanoseconds) {
  const timespec timeout = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 0x7fffffff, nullptr, nullptr,
          0);
}

}  // namespace horon::shared
