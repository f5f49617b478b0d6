#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "horon/base/thread.h"
#include "horon/comm/engine/channel.h"
#include "horon/comm/shared/region.h"

namespace horon::shared {

// Memory mapped into this process; unmapped with its last user.
struct Mapping {
  char* base = nullptr;
  size_t bytes = 0;
  int file = -1;  // descriptor behind it, -1 for anonymous memory
  ~Mapping();
};

// This rank among those of the region, and sizes.
struct RegionOptions {
  int rank = 0;
  int size = 1;
  uint64_t heap_bytes = 0;
  size_t inline_bytes = kInlineBytes;
  Clock::duration spin = std::chrono::microseconds(50);
  std::vector<int> names = {};  // rank in the job of each rank here, for messages; empty: the same
};

// How long a wait spins before it sleeps: `setting` in microseconds, or "auto".
Clock::duration spin_time(const std::string& setting, int local_ranks);

// One rank's view of the shared region: abort record, goodbye flags, channels, its part of the
// heap. Ranks in one process (heap_bytes 0) access each other's memory by plain pointers.
// Thread-safe.
class SharedRegion : public std::enable_shared_from_this<SharedRegion> {
 public:
  SharedRegion(RegionOptions options, std::shared_ptr<Mapping> mapping);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RegionOptions& options() const { return options_; }
  const RegionLayout& layout() const { return layout_; }
  RegionControl& control() const { return *reinterpret_cast<RegionControl*>(mapping_->base); }
  char* at(size_t offset) const { return mapping_->base + offset; }

  // Finds or allocates the control block of a communicator; every member calls it once, and close
  // once.
  int open_channel(uint64_t id);
  void close_channel(int channel, uint32_t members);

  // The address that all ranks use for this memory; kNoAddress if it is not in the region.
  uint64_t address_of(const void* data, uint64_t bytes) const;
  // This process's pointer for such an address.
  char* resolve(uint64_t address) const;
  OwnedBuffer allocate(uint64_t count, DType dtype);

  // Marks the region dead and wakes all ranks. The first call determines the reason.
  void abort(const Failure& failure);
  bool is_aborted() const;
  // Throws the failure in the abort record; the message begins with `doing`.
  [[noreturn]] void throw_abort(const std::string& doing) const;
  std::optional<Failure> failure() const;
  void wake_all() const;
  int name_of(int rank) const { return options_.names.empty() ? rank : options_.names[rank]; }

 private:
  class Heap;
  void lock_table() const;
  RegionOptions options_;
  RegionLayout layout_;
  OwnProcess process_;
  std::shared_ptr<Mapping> mapping_;
  std::shared_ptr<Heap> heap_;
};

}  // namespace horon::shared
