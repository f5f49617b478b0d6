#include <sys/mman.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/comm/shared/channel.h"
#include "horon/comm/shared/local.h"

namespace horon::shared {
namespace {

class SharedBackend final : public Backend {
 public:
  SharedBackend(std::string name, std::shared_ptr<World> world, std::shared_ptr<void> keep)
      : name_(std::move(name)), keep_(std::move(keep)), world_(std::move(world)) {}

  std::string name() const override { return name_; }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) override {
    return std::make_unique<SharedChannel>(world_, std::vector<int>(members.begin(), members.end()),
                                           id);
  }
  OwnedBuffer allocate(uint64_t count, DType dtype) override {
    return world_->allocate(count, dtype);
  }
  void mark_dead(const Failure& failure) override { world_->abort(failure); }
  std::optional<Failure> failure() const override { return world_->failure(); }
  std::vector<AlgorithmRow> algorithms() const override {
    return SharedChannel::algorithms(world_->options().inline_bytes);
  }

 private:
  std::string name_;
  std::shared_ptr<void> keep_;  // the watcher of an shm world; outlives world_
  std::shared_ptr<World> world_;
};

}  // namespace

std::unique_ptr<Backend> make_shared_backend(std::string name, std::shared_ptr<World> world,
                                             std::shared_ptr<void> keep) {
  return std::make_unique<SharedBackend>(std::move(name), std::move(world), std::move(keep));
}

std::vector<std::unique_ptr<Backend>> make_local_backends(int size, const LocalOptions& options) {
  require(size >= 1 && size <= kMaxRanks, "local: 1 to 192 ranks");
  const Layout layout(size, 0);
  auto mapping = std::make_shared<Mapping>();
  mapping->bytes = layout.total;
  void* base = mmap(nullptr, layout.total, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw io_error("mmap for local ranks");
  mapping->base = static_cast<char*>(base);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < size; ++rank) {
    WorldOptions world{.rank = rank, .size = size, .heap_bytes = 0};
    world.inline_bytes = std::min(options.inline_bytes, kInlineBytes);
    world.spin = spin_time(options.spin, size);
    backends.push_back(make_shared_backend(size == 1 ? "self" : "local",
                                           std::make_shared<World>(world, mapping), nullptr));
  }
  return backends;
}

}  // namespace horon::shared
