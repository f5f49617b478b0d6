#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "horon/base/thread.h"
#include "horon/comm/channel.h"
#include "horon/comm/shared/region.h"

namespace horon::shared {

// Memory mapped into this process; unmapped when the last user is gone.
struct Mapping {
  char* base = nullptr;
  size_t bytes = 0;
  int file = -1;  // descriptor behind it, -1 for anonymous memory
  ~Mapping();
};

struct WorldOptions {
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
// heap. Ranks of one process (heap_bytes 0) reach each other's memory by plain pointers.
// Thread-safe.
class World : public std::enable_shared_from_this<World> {
 public:
  World(WorldOptions options, std::shared_ptr<Mapping> mapping);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const WorldOptions& options() const { return options_; }
  const Layout& layout() const { return layout_; }
  WorldControl& control() const { return *reinterpret_cast<WorldControl*>(mapping_->base); }
  char* at(size_t offset) const { return mapping_->base + offset; }

  // Finds or claims the control block of a group; every member calls it once, and close once.
  int open_channel(uint64_t id);
  void close_channel(int channel, uint32_t members);

  uint64_t address_of(const void* data, uint64_t bytes) const;
  char* resolve(uint64_t address) const;
  OwnedBuffer allocate(uint64_t count, DType dtype);

  // Marks the world dead, unless it is already; wakes everybody. The first call decides the reason.
  void abort(const Failure& failure);
  bool is_aborted() const;
  // Throws what the abort record says; `doing` begins the message.
  [[noreturn]] void throw_abort(const std::string& doing) const;
  std::optional<Failure> failure() const;
  void wake_all() const;
  int name_of(int rank) const { return options_.names.empty() ? rank : options_.names[rank]; }

 private:
  class Heap;
  void lock_table() const;
  WorldOptions options_;
  Layout layout_;
  OwnProcess process_;
  std::shared_ptr<Mapping> mapping_;
  std::shared_ptr<Heap> heap_;
};

// The backend over a world; `name` is "self", "local" or "shm", `keep` lives as long as the
// backend.
std::unique_ptr<Backend> make_shared_backend(std::string name, std::shared_ptr<World> world,
                                             std::shared_ptr<void> keep);

}  // namespace horon::shared
