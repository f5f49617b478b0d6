#include "horon/comm/shared/backend.h"

#include "horon/comm/shared/channel.h"

namespace horon::shared {
namespace {

class SharedBackend final : public Backend {
 public:
  SharedBackend(std::string name, std::shared_ptr<SharedRegion> region, std::shared_ptr<void> keep)
      : name_(std::move(name)), keep_(std::move(keep)), region_(std::move(region)) {}

  std::string name() const override { return name_; }
  int rank() const override { return region_->rank(); }
  int size() const override { return region_->size(); }
  std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) override {
    return std::make_unique<SharedChannel>(region_,
                                           std::vector<int>(members.begin(), members.end()), id);
  }
  OwnedBuffer allocate(uint64_t count, DType dtype) override {
    return region_->allocate(count, dtype);
  }
  void mark_dead(const Failure& failure) override { region_->abort(failure); }
  std::optional<Failure> failure() const override { return region_->failure(); }
  std::vector<AlgorithmRow> algorithms() const override {
    return SharedChannel::algorithms(region_->options().inline_bytes);
  }

 private:
  std::string name_;
  std::shared_ptr<void> keep_;  // the watcher of an shm region; outlives region_
  std::shared_ptr<SharedRegion> region_;
};

}  // namespace

std::unique_ptr<Backend> make_shared_backend(std::string name, std::shared_ptr<SharedRegion> region,
                                             std::shared_ptr<void> keep) {
  return std::make_unique<SharedBackend>(std::move(name), std::move(region), std::move(keep));
}

}  // namespace horon::shared
