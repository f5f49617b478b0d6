#include "horon/comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/comm/engine/channel.h"
#include "horon/comm/engine/executor.h"
#include "horon/comm/engine/op_queue.h"

namespace horon {

struct Communicator::Job {
  std::shared_ptr<Backend> backend;
  Topology topology;
  Settings settings;
  std::mutex mutex;                           // guards made
  std::map<std::vector<int>, uint64_t> made;  // number of earlier sub-communicators of these ranks

  // The same on all members, with no messages.
  uint64_t next_id(const std::vector<int>& members) {
    const std::lock_guard lock(mutex);
    const uint64_t number = ++made[members];
    const uint64_t id = hash_bytes(members.data(), members.size() * sizeof(int),
                                   hash_bytes(&number, sizeof(number)));
    return std::max<uint64_t>(id, 1);
  }

  void after_error() const {
    if (settings.on_failure && backend->failure()) settings.on_failure();
  }

  // Throws what killed the communicators of this job, if something did.
  void check_alive(const std::string& doing) const {
    if (const auto failure = backend->failure()) raise(*failure, doing, backend->rank());
  }

  OwnedBuffer allocate(uint64_t count, DType dtype) const {
    check_alive("allocate");
    return backend->allocate(count, dtype);
  }
};

struct Communicator::State {
  std::shared_ptr<Job> job;
  std::vector<int> members;
  Executor executor;
  Watch watch;
  OpQueue queue;  // last: its thread uses the executor

  void run(const Request& request) {
    if (!watch.begins) return executor.run(request);
    watch.begins(request);
    try {
      executor.run(request);
    } catch (...) {
      watch.ends(request, true);
      throw;
    }
    watch.ends(request, false);
  }
};

Communicator::Communicator(std::shared_ptr<Job> job, std::vector<int> members) {
  auto channel = job->backend->open_channel(members, job->next_id(members));
  Executor::Options options{members, job->settings.timeout, job->settings.algorithm,
                            job->settings.device};
  auto backend = job->backend;
  const auto after_error = [at = job.get()] { at->after_error(); };
  state_ = std::unique_ptr<State>(
      new State{std::move(job), std::move(members),
                Executor(std::move(backend), std::move(channel), std::move(options)), Watch{},
                OpQueue("hrn-comm", after_error)});
}

namespace {

// An operation that runs when the communicator is closed has this long to end.
constexpr auto kFarewell = std::chrono::seconds(2);

std::vector<int> everybody(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Communicator::Communicator(const std::shared_ptr<Backend>& backend, Topology topology,
                           Settings settings)
    : Communicator(
          std::shared_ptr<Job>(new Job{backend, std::move(topology), std::move(settings), {}, {}}),
          everybody(backend->size())) {}

Communicator::~Communicator() {
  if (!state_->queue.close(Deadline::after(kFarewell))) leave();
}

int Communicator::rank() const { return state_->executor.index(); }
int Communicator::size() const { return state_->executor.size(); }
const Topology& Communicator::topology() const { return state_->job->topology; }
const std::vector<int>& Communicator::members() const { return state_->members; }
std::string Communicator::backend() const { return state_->job->backend->name(); }
DeviceRuntime* Communicator::device() const { return state_->job->settings.device.get(); }

bool Communicator::stages(const Request& request) const {
  return state_->executor.needs_staging(request);
}

std::shared_ptr<Store> Communicator::store() const { return state_->job->settings.store; }

void Communicator::run(const Request& request) {
  state_->queue.run([&] { state_->run(request); });
}

bool Communicator::run_unless_deviated(const Request& request) {
  bool done = false;
  state_->queue.run([&] { done = state_->executor.run_unless_deviated(request); });
  return done;
}

void Communicator::deviate(const OpOptions& options) {
  state_->queue.run([&] { state_->executor.deviate(options); });
}

void Communicator::watch(Watch watch) { state_->watch = std::move(watch); }

Work Communicator::start(Request request) {
  return state_->queue.submit(
      [state = state_.get(), request = std::move(request)] { state->run(request); });
}

Gathered Communicator::all_gather(BufferView in, const OpOptions& options) {
  Gathered gathered;
  run(Request::all_gather(in, gathered, options));
  return gathered;
}

int Communicator::join(const OpOptions& options) {
  int last = 0;
  run(Request::join(last, options));
  return last;
}

std::unique_ptr<Communicator> Communicator::sub_communicator(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  require(!ranks.empty(), "sub_communicator: no ranks");
  require(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end(),
          "sub_communicator: a rank is named twice");
  require(ranks.front() >= 0 && ranks.back() < size(),
          fmt::format("sub_communicator: ranks {}..{} of a communicator of {}", ranks.front(),
                      ranks.back(), size()));
  if (!std::binary_search(ranks.begin(), ranks.end(), rank())) return nullptr;
  std::vector<int> members;
  for (int rank : ranks) members.push_back(state_->members[static_cast<size_t>(rank)]);
  return std::unique_ptr<Communicator>(new Communicator(state_->job, std::move(members)));
}

OwnedBuffer Communicator::allocate(uint64_t count, DType dtype) {
  return state_->job->allocate(count, dtype);
}

ExactSum Communicator::exact_sum(uint64_t count, DType dtype, uint64_t shards) {
  state_->job->check_alive("exact_sum");
  // A sum that is still there does not keep a communicator open.
  const auto allocate = [weak = std::weak_ptr(state_->job)](uint64_t elements, DType type) {
    const auto job = weak.lock();
    require(job != nullptr, "exact sum: its communicator is closed");
    return job->allocate(elements, type);
  };
  return ExactSum(count, dtype, shards, allocate, state_->job->settings.device);
}

const std::vector<AlgorithmRow>& Communicator::algorithms() const {
  return state_->executor.algorithms();
}
const AlgorithmRow* Communicator::chosen() const { return state_->executor.chosen(); }

std::vector<uint64_t> Communicator::away_us() const { return state_->executor.away_us(); }

void Communicator::give_up_on(const std::vector<int>& ranks) {
  state_->job->backend->mark_dead({FailureKind::kSilent, ranks, Milliseconds(0)});
  state_->job->after_error();
}

void Communicator::leave() {
  const int self = state_->members[static_cast<size_t>(rank())];
  state_->job->backend->mark_dead({FailureKind::kLeft, {self}, Milliseconds(0)});
  state_->job->after_error();
}

double Communicator::seconds_encrypting() const {
  return state_->job->backend->seconds_encrypting();
}

std::string Communicator::dead_reason() const {
  try {
    state_->job->check_alive("communicator");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace horon
