#include "horon/comm/shared/channel.h"

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/reduce.h"

namespace horon::shared {
namespace {

// Spinning looks at the clock only now and then: a pause costs 40-140 cycles.
constexpr int kPausesPerLook = 16;
// Progress is the operation's number and, below it, the step within it.
constexpr int kStepBits = 28;
// A sleeper looks around at least this often, whatever happens to wake-ups.
constexpr auto kSlice = std::chrono::milliseconds(50);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

SharedChannel::SharedChannel(std::shared_ptr<World> world, std::vector<int> members, uint64_t id)
    : world_(std::move(world)),
      members_(std::move(members)),
      channel_(world_->open_channel(id)),
      control_(world_->control().channels[channel_]),
      states_(reinterpret_cast<Member*>(world_->at(world_->layout().members_at(channel_)))),
      headers_(members_.size()) {
  const auto me = std::find(members_.begin(), members_.end(), world_->rank());
  index_ = static_cast<int>(me - members_.begin());
}

SharedChannel::~SharedChannel() {
  if (process_.is_here()) world_->close_channel(channel_, static_cast<uint32_t>(members_.size()));
}

void SharedChannel::arrive(const Header& header, std::span<const std::byte> inline_data,
                           Milliseconds timeout) {
  ++sequence_;
  steps_ = 0;
  const int parity = static_cast<int>(sequence_ & 1);
  state(index_).headers[parity] = header;
  state(index_).headers[parity].sequence = sequence_;
  headers_[index_] = header;
  if (!inline_data.empty()) {
    std::memcpy(world_->at(world_->layout().inline_at(channel_, index_, parity)),
                inline_data.data(), inline_data.size());
  }
  meet(control_.arrive, static_cast<uint32_t>(members_.size()), sequence_ << kStepBits, timeout);
  for (size_t i = 0; i < members_.size(); ++i) headers_[i] = states_[i].headers[parity];
}

const std::byte* SharedChannel::inline_data(int member) const {
  const int parity = static_cast<int>(sequence_ & 1);
  return reinterpret_cast<const std::byte*>(
      world_->at(world_->layout().inline_at(channel_, member, parity)));
}

uint64_t SharedChannel::address_of(const BufferView& view) const {
  if (!view.device.is_cpu()) return kNoAddress;
  return world_->address_of(view.data, view.bytes());
}

char* SharedChannel::stage(int member) const {
  return world_->at(world_->layout().stage_at(channel_, member));
}

// ---- meeting ----

void SharedChannel::meet(Barrier& barrier, uint32_t parties, uint64_t stamp, Milliseconds timeout) {
  if (world_->is_aborted()) world_->throw_abort(describe(headers_[index_]));
  const uint32_t seen = barrier.epoch.load();
  state(index_).progress.store(stamp);
  if (barrier.count.fetch_add(1) + 1 == parties) {
    barrier.count.store(0);
    barrier.epoch.fetch_add(1);
    if (barrier.sleepers.load() != 0) futex_wake_all(barrier.epoch);
    return;
  }
  wait(barrier, seen, stamp, timeout);
}

void SharedChannel::step(const Round& round) {
  if (round.active.size() < 2) return;
  ++steps_;
  meet(control_.step, static_cast<uint32_t>(round.active.size()), (sequence_ << kStepBits) | steps_,
       round.timeout);
}

void SharedChannel::wait(Barrier& barrier, uint32_t seen, uint64_t stamp, Milliseconds timeout) {
  const auto open = [&] { return barrier.epoch.load(std::memory_order_acquire) != seen; };
  const Clock::time_point spin_until = Clock::now() + world_->options().spin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (open()) return;
      pause();
    }
  } while (Clock::now() < spin_until);
  const Deadline deadline = Deadline::after(timeout - world_->options().spin);
  barrier.sleepers.fetch_add(1);
  try {
    while (!open()) {
      check_peers(stamp, deadline, timeout);
      const auto slice = std::chrono::nanoseconds(deadline.left(kSlice)).count();
      futex_wait(barrier.epoch, seen, std::max<int64_t>(slice, 1000));
    }
  } catch (...) {
    barrier.sleepers.fetch_sub(1);
    if (open()) return;  // it was complete before whoever we would blame disappeared
    throw;
  }
  barrier.sleepers.fetch_sub(1);
}

// Throws if the world is dead, if somebody we wait for has left, or if we are late.
void SharedChannel::check_peers(uint64_t stamp, Deadline deadline, Milliseconds timeout) {
  std::vector<int> behind = ranks_behind(stamp);
  std::erase_if(behind, [&](int rank) { return world_->control().left[rank].load() == 0; });
  if (!behind.empty()) world_->abort({FailureKind::kLeft, job_ranks(behind)});
  std::vector<int> missing = ranks_behind(stamp);
  // Nobody is behind, and still we wait: somebody stopped between showing that it came and being
  // counted.
  if (missing.empty() && Clock::now() - std::chrono::seconds(1) > deadline.at()) missing = members_;
  std::erase(missing, members_[static_cast<size_t>(index_)]);
  if (deadline.passed() && !missing.empty()) {
    const Failure failure{FailureKind::kTimeout, job_ranks(missing), timeout};
    world_->abort(failure);
    // If whoever raised the alarm before us died before saying why, we say it ourselves.
    if (!world_->is_aborted())
      raise(failure, describe(headers_[index_]), world_->name_of(world_->rank()));
  }
  if (world_->is_aborted()) world_->throw_abort(describe(headers_[index_]));
}

std::vector<int> SharedChannel::job_ranks(std::vector<int> ranks) const {
  for (int& rank : ranks) rank = world_->name_of(rank);
  return ranks;
}

std::vector<int> SharedChannel::ranks_behind(uint64_t stamp) const {
  std::vector<int> behind;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (states_[i].progress.load() < stamp) behind.push_back(members_[i]);
  }
  return behind;
}

}  // namespace horon::shared
