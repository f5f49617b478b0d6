#include "horon/comm/p2p/backend.h"

#include <numeric>

#include "horon/base/error.h"
#include "horon/comm/p2p/channel.h"

namespace horon {
namespace {

class P2pBackend final : public Backend {
 public:
  explicit P2pBackend(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}
  std::string name() const override { return transport_->name(); }
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) override {
    return std::make_unique<P2pChannel>(transport_,
                                        std::vector<int>(members.begin(), members.end()), id);
  }
  OwnedBuffer allocate(uint64_t count, DType dtype) override {
    return OwnedBuffer::host(count, dtype);
  }
  void mark_dead(const Failure& failure) override { transport_->mark_dead(failure); }
  std::optional<Failure> failure() const override { return transport_->failure(); }
  double seconds_encrypting() const override { return transport_->seconds_encrypting(); }
  std::vector<AlgorithmRow> algorithms() const override {
    return P2pChannel::algorithms(transport_->takes_early());
  }

 private:
  std::shared_ptr<Transport> transport_;
};

}  // namespace

std::unique_ptr<Backend> make_p2p_backend(std::shared_ptr<Transport> transport) {
  std::vector<int> everybody(static_cast<size_t>(transport->size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  transport->connect(everybody);
  return std::make_unique<P2pBackend>(std::move(transport));
}

}  // namespace horon
