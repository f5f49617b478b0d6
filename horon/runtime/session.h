#pragma once

#include <functional>
#include <memory>

#include "horon/comm/once.h"
#include "horon/runtime/runtime.h"

namespace horon {

// This process's place in the job that it was started in: by `horon run`, mpirun, srun, TF_CONFIG,
// or alone (then it is rank 0 of 1). Made once, first thing in main(); all processes together.
class Session {
 public:
  Session();
  explicit Session(std::unique_ptr<Communicator> world);  // of ranks that are no processes

  int rank() const { return runtime_->rank(); }
  int size() const { return runtime_->size(); }
  int local_rank() const { return topology().local_rank; }  // among the ranks of this host
  int local_size() const { return topology().local_size; }
  int cross_rank() const { return topology().cross_rank; }  // of this host among the hosts
  int cross_size() const { return topology().cross_size; }
  bool is_first() const { return rank() == 0; }

  Runtime& runtime() const { return *runtime_; }
  Communicator& world() const { return runtime_->world(); }
  void barrier() const { world().barrier({.name = "session"}); }
  double sum(double value) const;  // of all ranks
  // One rank of each host does it, the others wait; if it fails anywhere, all throw.
  void once_per_host(const std::function<void()>& action) const {
    horon::once_per_host(world(), action);
  }

 private:
  const Topology& topology() const { return world().topology(); }
  std::shared_ptr<Runtime> runtime_;
};

}  // namespace horon
