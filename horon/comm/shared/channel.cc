#include "horon/comm/shared/channel.h"

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"

namespace horon::shared {
namespace {

// Spinning looks at the clock only now and then: a pause costs 40-140 cycles.
constexpr int kPausesPerLook = 16;
// Progress is the operation's number and, below it, the phase within it.
constexpr int kPhaseBits = 28;
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

SharedChannel::SharedChannel(std::shared_ptr<SharedRegion> region, std::vector<int> members,
                             uint64_t id)
    : region_(std::move(region)),
      members_(std::move(members)),
      channel_(region_->open_channel(id)),
      control_(region_->control().channels[channel_]),
      states_(reinterpret_cast<Member*>(region_->at(region_->layout().members_at(channel_)))),
      headers_(members_.size()) {
  const auto me = std::find(members_.begin(), members_.end(), region_->rank());
  index_ = static_cast<int>(me - members_.begin());
}

SharedChannel::~SharedChannel() {
  if (process_.is_here()) region_->close_channel(channel_, static_cast<uint32_t>(members_.size()));
}

void SharedChannel::arrive(const Header& header, std::span<const std::byte> inline_data,
                           Milliseconds timeout) {
  ++sequence_;
  phases_ = 0;
  const int parity = static_cast<int>(sequence_ & 1);
  state(index_).headers[parity] = header;
  state(index_).headers[parity].sequence = sequence_;
  headers_[index_] = header;
  if (!inline_data.empty()) {
    std::memcpy(region_->at(region_->layout().inline_at(channel_, index_, parity)),
                inline_data.data(), inline_data.size());
  }
  meet(control_.arrive, static_cast<uint32_t>(members_.size()), sequence_ << kPhaseBits, timeout);
  for (size_t i = 0; i < members_.size(); ++i) headers_[i] = states_[i].headers[parity];
}

const std::byte* SharedChannel::inline_data(int member) const {
  const int parity = static_cast<int>(sequence_ & 1);
  return reinterpret_cast<const std::byte*>(
      region_->at(region_->layout().inline_at(channel_, member, parity)));
}

uint64_t SharedChannel::address_of(const BufferView& view) const {
  if (!view.device.is_cpu()) return kNoAddress;
  return region_->address_of(view.data, view.bytes());
}

char* SharedChannel::stage(int member) const {
  return region_->at(region_->layout().stage_at(channel_, member));
}

// ---- meeting ----

void SharedChannel::meet(Barrier& barrier, uint32_t parties, uint64_t stamp, Milliseconds timeout) {
  if (region_->is_aborted()) region_->throw_abort(describe(headers_[index_]));
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

void SharedChannel::next_phase(const Round& round) {
  if (round.active.size() < 2) return;
  ++phases_;
  meet(control_.phase, static_cast<uint32_t>(round.active.size()),
       (sequence_ << kPhaseBits) | phases_, round.timeout);
}

void SharedChannel::wait(Barrier& barrier, uint32_t seen, uint64_t stamp, Milliseconds timeout) {
  const auto open = [&] { return barrier.epoch.load(std::memory_order_acquire) != seen; };
  const Clock::time_point spin_until = Clock::now() + region_->options().spin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (open()) return;
      pause();
    }
  } while (Clock::now() < spin_until);
  const Deadline deadline = Deadline::after(timeout - region_->options().spin);
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

// Throws if the region is dead, if somebody we wait for has left, or if we are late.
void SharedChannel::check_peers(uint64_t stamp, Deadline deadline, Milliseconds timeout) {
  std::vector<int> behind = ranks_behind(stamp);
  std::erase_if(behind, [&](int rank) { return region_->control().left[rank].load() == 0; });
  if (!behind.empty()) region_->abort({FailureKind::kLeft, job_ranks(behind)});
  std::vector<int> missing = ranks_behind(stamp);
  // Nobody is behind, and still we wait: somebody stopped between showing that it came and being
  // counted.
  if (missing.empty() && Clock::now() - std::chrono::seconds(1) > deadline.at()) missing = members_;
  std::erase(missing, members_[static_cast<size_t>(index_)]);
  if (deadline.passed() && !missing.empty()) {
    const Failure failure{FailureKind::kTimeout, job_ranks(missing), timeout};
    region_->abort(failure);
    // If whoever raised the alarm before us died before saying why, we say it ourselves.
    if (!region_->is_aborted())
      raise(failure, describe(headers_[index_]), region_->name_of(region_->rank()));
  }
  if (region_->is_aborted()) region_->throw_abort(describe(headers_[index_]));
}

std::vector<int> SharedChannel::job_ranks(std::vector<int> ranks) const {
  for (int& rank : ranks) rank = region_->name_of(rank);
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
