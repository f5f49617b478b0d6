#pragma once

#include <functional>
#include <memory>
#include <string>

#include "horon/base/knob.h"
#include "horon/base/signal.h"
#include "horon/comm/join.h"
#include "horon/comm/once.h"
#include "horon/runtime/runtime.h"

namespace horon {

struct SessionOptions {
  Knobs knobs = Knobs::resolve({}, process_env, "");  // environment, and the file it names
  // SIGTERM and SIGINT ask for a stop (signals()->token()), SIGUSR1 writes the last operations.
  // Until leave_at_once(false) the first one ends the process with 75: while there is nothing to
  // commit. Make such a session before other threads start.
  bool takes_signals = false;
  bool connects = true;  // false: connect() is called later
  CodecRegistry codecs;  // by name; add those of your own
  std::shared_ptr<DeviceRuntime> device;
};

// One rank of a job, whoever started it (`horon run`, mpirun, srun, TF_CONFIG, or alone: rank 0 of
// 1): its settings, its number, the store where ranks meet, and once it is connected the runtime
// over the communicator of all ranks. First thing in main(), on all processes together; a process
// may have several, one after the other or beside each other, all processes in the same order.
//
// What is in here can be lost and made anew (renew): one generation after the other. What a program
// trains (parameters, optimizer, position) is not in here and survives. Errors as join_world's,
// make_communicator's and Runtime's.
class Session {
 public:
  Session() : Session(SessionOptions{}) {}
  explicit Session(const SessionOptions& options);
  // Of ranks that are no processes: they have met already.
  explicit Session(std::unique_ptr<Communicator> world, const RuntimeOptions& options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Knobs& knobs() const { return knobs_; }
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  bool is_first() const { return rank() == 0; }
  const std::shared_ptr<Store>& store() const { return place_.store; }  // also for one rank
  StopOnSignal* signals() const { return signals_.get(); }              // null: not taken

  // All ranks, once: compares the settings that must be alike, makes communicator and runtime.
  void connect(std::shared_ptr<DeviceRuntime> device = nullptr);
  bool is_connected() const { return runtime_ != nullptr; }
  // This process as `of` ranks instead of one, each with a session of its own, not connected yet;
  // all processes with the same `of`. This one is then for signals, store and settings only, and
  // outlives the others.
  std::unique_ptr<Session> replica(int index, int of);

  // Below: connected.
  Runtime& runtime() const;
  Communicator& world() const { return runtime().world(); }
  const Topology& topology() const { return world().topology(); }
  int local_rank() const { return topology().local_rank; }  // among the ranks of this host
  int local_size() const { return topology().local_size; }
  int cross_rank() const { return topology().cross_rank; }  // of this host among the hosts
  int cross_size() const { return topology().cross_size; }
  void barrier() const { world().barrier({.name = "session"}); }
  double sum(double value) const;  // of all ranks
  // One rank of each host does it, the others wait; if it fails anywhere, all throw.
  void once_per_host(const std::function<void()>& action) const {
    horon::once_per_host(world(), action);
  }

  // How often it was renewed.
  int generation() const { return generation_; }
  // After a failure, or when ranks come and go: the ranks that are left (or came) meet anew, in
  // `next` places, compare their settings, and the runtime goes on over a new communicator
  // (Runtime::rebind). All of them, with the same `generation`, above this one's. Newcomers make a
  // session with that place and generation instead. Memory for what was declared, anew.
  BucketMemory renew(const World& next, int generation);
  // A newcomer.
  Session(const World& place, int generation, const SessionOptions& options);

 private:
  std::unique_ptr<Communicator> make_world(const std::shared_ptr<DeviceRuntime>& device) const;
  RuntimeOptions runtime_settings(const Communicator& world) const;

  Knobs knobs_;
  std::string name_ = "world";             // of its communicators
  std::shared_ptr<StopOnSignal> signals_;  // first of what has threads
  World place_;
  int generation_ = 0;
  CodecRegistry codecs_;
  std::shared_ptr<DeviceRuntime> device_;
  std::unique_ptr<Runtime> runtime_;
  std::shared_ptr<void> dumps_;  // while it lives, SIGUSR1 asks the runtime
};

}  // namespace horon
