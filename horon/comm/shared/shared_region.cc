#include "horon/comm/shared/shared_region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"

namespace horon::shared {

Mapping::~Mapping() {
  if (base != nullptr) munmap(base, bytes);
  if (file >= 0) close(file);
}

Clock::duration spin_time(const std::string& setting, int local_ranks) {
  if (setting != "auto")
    return std::chrono::microseconds(parse_integer(setting, "spin", 0, 1'000'000));
  // Measured: with a core for each rank 50 us of spinning saves a 19-40 us wake-up; with more ranks
  // than cores spinning takes the core from the one that is waited for.
  const bool fits = local_ranks <= static_cast<int>(std::thread::hardware_concurrency());
  return std::chrono::microseconds(fits ? 50 : 2);
}

// First-fit over this rank's part of the region. Pages are taken when a buffer is allocated (so
// that a full memory is an error here, not a SIGBUS later) and given back when it is freed.
class SharedRegion::Heap {
 public:
  Heap(std::shared_ptr<Mapping> mapping, size_t begin, size_t bytes)
      : mapping_(std::move(mapping)) {
    free_[begin] = bytes;
  }

  size_t take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& hole) { return hole.second >= bytes; });
    if (found == free_.end()) {
      throw IoError(
          fmt::format("shared heap: no room for {}; raise HORON_HEAP_BYTES", format_bytes(bytes)));
    }
    const auto [offset, hole] = *found;
    if (posix_fallocate(mapping_->file, static_cast<off_t>(offset), static_cast<off_t>(bytes)) !=
        0) {
      throw IoError(
          fmt::format("shared heap: the system has no memory for {}", format_bytes(bytes)));
    }
    free_.erase(found);
    if (hole > bytes) free_[offset + bytes] = hole - bytes;
    return offset;
  }

  void give(size_t offset, size_t bytes) {
    if (!process_.is_here()) return;  // a forked child's copy: the memory is the parent's
    const std::lock_guard lock(mutex_);
    fallocate(mapping_->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset), static_cast<off_t>(bytes));
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }

 private:
  std::shared_ptr<Mapping> mapping_;
  OwnProcess process_;
  std::mutex mutex_;               // guards free_
  std::map<size_t, size_t> free_;  // offset -> bytes
};

SharedRegion::SharedRegion(RegionOptions options, std::shared_ptr<Mapping> mapping)
    : options_(std::move(options)),
      layout_(options_.size, options_.heap_bytes),
      mapping_(std::move(mapping)) {
  if (layout_.heap_bytes > 0) {
    heap_ = std::make_shared<Heap>(mapping_, layout_.heap_at(options_.rank), layout_.heap_bytes);
  }
}

SharedRegion::~SharedRegion() {
  if (!process_.is_here()) return;  // a forked child that ends must not say goodbye for its parent
  control().left[options_.rank].store(1);
  wake_all();
}

// A peer may die while it holds the lock: its death is noticed, and waiting ends with that error.
void SharedRegion::lock_table() const {
  uint32_t unlocked = 0;
  while (!control().table_lock.compare_exchange_weak(unlocked, 1)) {
    if (is_aborted()) throw_abort("open channel");
    unlocked = 0;
    std::this_thread::yield();
  }
}

int SharedRegion::open_channel(uint64_t id) {
  lock_table();
  int found = -1;
  int empty = -1;
  for (int channel = 0; channel < kMaxChannels && found < 0; ++channel) {
    const uint64_t other = control().channels[channel].id.load();
    if (other == id) found = channel;
    if (other == 0 && empty < 0) empty = channel;
  }
  if (found < 0 && empty >= 0) {
    found = empty;
    control().channels[found].id.store(id);
  }
  control().table_lock.store(0);
  if (found < 0)
    throw UsageError(
        fmt::format("more than {} sub-communicators are open; close some", kMaxChannels));
  return found;
}

// Freed by the last member, when nobody can look at it any more.
void SharedRegion::close_channel(int channel, uint32_t members) {
  ChannelControl& block = control().channels[channel];
  if (block.closed.fetch_add(1) + 1 != members || is_aborted()) return;
  auto* states = reinterpret_cast<Member*>(at(layout_.members_at(channel)));
  for (uint32_t i = 0; i < members; ++i) states[i].progress.store(0);
  block.closed.store(0);
  block.id.store(0);
}

uint64_t SharedRegion::address_of(const void* data, uint64_t bytes) const {
  const auto* begin = static_cast<const char*>(data);
  if (heap_ == nullptr) return reinterpret_cast<uint64_t>(begin);
  const char* heap = at(layout_.heap_at(options_.rank));
  if (begin < heap || begin + bytes > heap + layout_.heap_bytes) return kNoAddress;
  return static_cast<uint64_t>(begin - mapping_->base);
}

char* SharedRegion::resolve(uint64_t address) const {
  if (heap_ == nullptr) return reinterpret_cast<char*>(address);
  return mapping_->base + address;
}

OwnedBuffer SharedRegion::allocate(uint64_t count, DType dtype) {
  if (heap_ == nullptr) return OwnedBuffer::host(count, dtype);
  constexpr uint64_t kPage = 4096;
  if (count > layout_.heap_bytes) {
    throw UsageError(fmt::format("allocate: {} elements do not fit into a heap of {}", count,
                                 format_bytes(layout_.heap_bytes)));
  }
  const size_t bytes = std::max<uint64_t>((count * size_of(dtype) + kPage - 1) / kPage, 1) * kPage;
  const size_t offset = heap_->take(bytes);
  // The owner keeps heap and mapping alive: views stay valid after the communicator is gone.
  std::shared_ptr<void> owner(at(offset), [heap = heap_, mapping = mapping_, offset, bytes](void*) {
    heap->give(offset, bytes);
  });
  return {BufferView{at(offset), count, dtype, {}}, std::move(owner)};
}

void SharedRegion::abort(const Failure& failure) {
  uint32_t unclaimed = 0;
  if (!control().abort_claim.compare_exchange_strong(unclaimed, 1)) return;
  const size_t blamed = std::min<size_t>(failure.ranks.size(), kMaxBlamed);
  for (size_t i = 0; i < blamed; ++i) control().abort_ranks[i].store(failure.ranks[i]);
  control().abort_count.store(static_cast<uint32_t>(blamed));
  control().abort_after_ms.store(failure.after.count());
  control().abort_kind.store(static_cast<uint32_t>(failure.kind));
  wake_all();
}

bool SharedRegion::is_aborted() const { return control().abort_kind.load() != 0; }

std::optional<Failure> SharedRegion::failure() const {
  if (!is_aborted()) return std::nullopt;
  Failure found{.kind = static_cast<FailureKind>(control().abort_kind.load()),
                .ranks = {},
                .after = Milliseconds(control().abort_after_ms.load())};
  for (uint32_t i = 0; i < control().abort_count.load() && i < kMaxBlamed; ++i) {
    found.ranks.push_back(control().abort_ranks[i].load());
  }
  return found;
}

void SharedRegion::throw_abort(const std::string& doing) const {
  raise(failure().value_or(Failure{}), doing, name_of(rank()));
}

void SharedRegion::wake_all() const {
  for (ChannelControl& channel : control().channels) {
    if (channel.id.load() == 0) continue;
    futex_wake_all(channel.arrive.epoch);
    futex_wake_all(channel.phase.epoch);
  }
}

}  // namespace horon::shared
