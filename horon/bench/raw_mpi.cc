#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/bench/raw_peer.h"
#include "horon/comm/mpi/mpi_part.h"

namespace horon::bench {
namespace {

using Sum = void(float* data, uint64_t count);

class RawMpi final : public RawPeer {
 public:
  RawMpi(std::shared_ptr<Part> part, Sum* sum) : part_(std::move(part)), sum_(sum) {}
  void all_reduce(float* data, uint64_t count) override { sum_(data, count); }

 private:
  std::shared_ptr<Part> part_;  // has sum_
  Sum* sum_;
};

}  // namespace

std::unique_ptr<RawPeer> make_raw_mpi(const std::vector<std::string>& part_folders) {
  const std::string flavour = mpi_flavour_of_environment();
  require(!flavour.empty(), "mpi: this process was not started by mpirun");
  const auto part = Part::open("mpi_" + flavour, part_folders);
  std::string why;
  Sum* sum = part->function<Sum*(std::string*)>("horon_mpi_raw_sum")(&why);
  require(sum != nullptr, "mpi: " + why);
  return std::make_unique<RawMpi>(part, sum);
}

}  // namespace horon::bench
