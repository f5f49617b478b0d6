#pragma once

#include <functional>
#include <memory>
#include <string>

#include "horon/base/job_settings.h"
#include "horon/base/signal.h"
#include "horon/comm/enter_job.h"
#include "horon/comm/once.h"
#include "horon/runtime/runtime.h"

namespace horon {

// Options of a Session.
struct SessionOptions {
  JobSettings job_settings =
      JobSettings::resolve({}, process_env, "");  // environment, and the file in HORON_CONFIG
  // Handles signals: SIGTERM and SIGINT request a stop (signals()->token()), SIGUSR1 writes the
  // last operations. Until leave_at_once(false) is called, i.e. while there is nothing to save, the
  // first SIGTERM or SIGINT ends the process with exit code 75. Make such a session before other
  // threads start.
  bool takes_signals = false;
  bool connects = true;  // false: call connect() later
  CodecRegistry codecs;  // by name; add your own
  std::shared_ptr<DeviceRuntime> device;
};

// One rank of a job, whatever started it (`horon run`, mpirun, srun, TF_CONFIG, or alone: rank 0 of
// 1): its settings, its rank number, the store, and, once connected, the runtime over the
// communicator of all ranks.
//
//   horon::Session session;
//   if (session.is_first()) std::printf("%d ranks\n", session.size());
//
// Make it first in main(), in all processes. A process may have several, one after another or at
// the same time, all processes in the same order. The session owns communicator and runtime. One
// thread makes, connects and renews it; any thread may use the runtime.
//
// Its contents can be lost and made again (renew), one generation after another; what a program
// trains (parameters, optimizer, position) is not part of it and survives. Errors: as those of
// enter_job, make_communicator and Runtime.
//
// A facade: many methods, no logic of its own.
class Session {
 public:
  Session() : Session(SessionOptions{}) {}
  explicit Session(const SessionOptions& options);
  // For ranks that are threads or connected otherwise: takes a communicator.
  explicit Session(std::unique_ptr<Communicator> world, const RuntimeOptions& options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const JobSettings& job_settings() const { return job_settings_; }
  int rank() const { return membership_.rank; }
  int size() const { return membership_.size; }
  bool is_first() const { return rank() == 0; }
  const std::shared_ptr<Store>& store() const { return membership_.store; }  // also for one rank
  StopOnSignal* signals() const { return signals_.get(); }  // null: signals are not handled

  // All ranks, once: compares the settings that must be equal, makes communicator and runtime.
  void connect(std::shared_ptr<DeviceRuntime> device = nullptr);
  bool is_connected() const { return runtime_ != nullptr; }
  // Makes one of `of` ranks that this process holds instead of one, each with its own session, not
  // yet connected. All processes pass the same `of`. This session then serves only signals, store
  // and settings, and must outlive the others.
  std::unique_ptr<Session> replica(int index, int of);

  // The methods below require a connected session.
  Runtime& runtime() const;
  Communicator& world() const { return runtime().world(); }
  const Topology& topology() const { return world().topology(); }
  int local_rank() const { return topology().local_rank; }  // among the ranks of this host
  int local_size() const { return topology().local_size; }
  int cross_rank() const { return topology().cross_rank; }  // number of this host
  int cross_size() const { return topology().cross_size; }
  void barrier() const { world().barrier({.name = "session"}); }
  double sum(double value) const;  // over all ranks; all ranks call it
  // One rank of each host runs the action, the others wait; if it fails anywhere, all throw.
  void once_per_host(const std::function<void()>& action) const {
    horon::once_per_host(world(), action);
  }

  // The number of renewals.
  int generation() const { return generation_; }
  // Continues after a failure or when ranks are lost or added: the remaining and new ranks connect
  // again, with the ranks in `next`, compare their settings, and the runtime continues over a new
  // communicator (Runtime::rebind). All of them call it with the same `generation`, which must be
  // higher than this one's. New ranks make a session with that membership and generation instead.
  // Returns new memory for the declared tensors.
  BucketMemory renew(const Membership& next, int generation);
  // Connects a rank whose number is known, such as one that is added at a later generation.
  Session(const Membership& membership, int generation, const SessionOptions& options);

 private:
  std::unique_ptr<Communicator> make_world(const std::shared_ptr<DeviceRuntime>& device) const;
  RuntimeOptions runtime_settings(const Communicator& world) const;
  void arm_dumps();

  JobSettings job_settings_;
  std::string name_ = "world";             // of its communicators
  std::shared_ptr<StopOnSignal> signals_;  // before every member that has threads
  Membership membership_;
  int generation_ = 0;
  CodecRegistry codecs_;
  std::shared_ptr<DeviceRuntime> device_;
  std::unique_ptr<Runtime> runtime_;
  std::shared_ptr<void> dumps_;  // SIGUSR1 calls the runtime while this exists
};

}  // namespace horon
