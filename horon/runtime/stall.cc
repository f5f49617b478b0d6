#include "horon/runtime/stall.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "horon/base/error.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

// Longest wait for the answering thread when nothing is left to answer.
constexpr auto kFarewell = std::chrono::seconds(1);

}  // namespace

std::string pack_state(const RankState& state) {
  return Packer()
      .texts(state.pending)
      .text(state.last)
      .u64(static_cast<uint64_t>(state.last_ms))
      .take();
}

RankState unpack_state(const std::string& bytes) {
  Unpacker from(bytes);
  RankState state;
  state.pending = from.texts();
  state.last = from.text();
  state.last_ms = static_cast<int64_t>(from.u64());
  from.end();
  return state;
}

void RankState::note_finished(const std::string& name, Clock::time_point at) {
  if (name.empty()) return;
  const auto ago = std::chrono::duration_cast<Milliseconds>(Clock::now() - at).count();
  if (!last.empty() && ago >= last_ms) return;
  last = name;
  last_ms = ago;
}

std::string explain_wait(const std::string& name, Milliseconds waited,
                         const std::vector<int>& ranks,
                         const std::vector<std::optional<RankState>>& answers) {
  std::vector<int> without;
  std::vector<int> silent;
  int unknown = 0;
  std::string details;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!answers[i]) {
      silent.push_back(ranks[i]);
      continue;
    }
    if (!answers[i]->is_known) {
      ++unknown;
      continue;
    }
    const auto& pending = answers[i]->pending;
    if (std::find(pending.begin(), pending.end(), name) != pending.end()) continue;
    without.push_back(ranks[i]);
    if (without.size() > 4) continue;  // the first few are enough
    details += answers[i]->last.empty()
                   ? fmt::format("; rank {} has not finished any operation yet", ranks[i])
                   : fmt::format("; rank {} last finished '{}' {:.1f} s ago", ranks[i],
                                 answers[i]->last, static_cast<double>(answers[i]->last_ms) * 1e-3);
  }
  std::string text = fmt::format("waiting for '{}' for {} s", name, waited.count() / 1000);
  if (!without.empty()) {
    text += fmt::format(": {} {} not submitted it", name_ranks(without),
                        without.size() == 1 ? "has" : "have");
  } else if (unknown > 0 && silent.empty()) {
    text += ": the others cannot be asked";
  } else if (silent.empty()) {
    text += ": all ranks have submitted it; it may be waiting for an earlier operation";
  }
  text += details;
  if (!silent.empty()) {
    text += fmt::format("{} {} {} not answer", without.empty() ? ":" : ";", name_ranks(silent),
                        silent.size() == 1 ? "does" : "do");
  }
  return text;
}

std::string StragglerWatch::add(const std::vector<uint64_t>& away_us,
                                const std::vector<int>& ranks) {
  if (before_.empty()) {
    before_ = away_us;
    slow_.resize(away_us.size());
  }
  if (++operations_ % kWindow != 0) return "";
  std::vector<uint64_t> spent(away_us.size());
  for (size_t i = 0; i < spent.size(); ++i) spent[i] = (away_us[i] - before_[i]) / kWindow;
  before_ = away_us;
  std::vector<uint64_t> sorted = spent;
  std::sort(sorted.begin(), sorted.end());
  const uint64_t median = sorted[(sorted.size() - 1) / 2];
  std::string line;
  for (size_t i = 0; i < spent.size(); ++i) {
    const bool slow = spent[i] > median + median / 2 && spent[i] > median + 1000;
    slow_[i] = slow ? slow_[i] + 1 : 0;
    if (slow_[i] == 2) {
      line = fmt::format(
          "rank {} is slow: {:.1f} ms between operations, half of the ranks take {:.1f} "
          "or less; the others wait for it",
          ranks[i], static_cast<double>(spent[i]) * 1e-3, static_cast<double>(median) * 1e-3);
    }
  }
  return line;
}

// State of the thread that asks the other ranks.
struct StallMonitor::Watch {
  Options options;
  std::shared_ptr<Store> store;
  Events events;
  std::atomic<bool> asleep{false};
  std::mutex mutex;  // guards the three below
  std::condition_variable changed;
  bool stops = false;
  bool asks = false;  // waiting for other ranks; if it is to stop by then, does not touch `events`
  bool over = false;
  uint64_t asked = 0;        // questions asked by this rank
  Clock::time_point warned;  // the wait that was warned about last

  void run();
  void examine(const LongWait& wait);
  // False if the thread is to stop.
  bool set_asks(bool value) {
    const std::lock_guard lock(mutex);
    asks = value && !stops;
    changed.notify_all();
    return !stops;
  }
  std::vector<std::optional<RankState>> ask(const std::vector<int>& ranks);
};

// State of the thread that answers the other ranks' questions.
struct StallMonitor::Answers {
  int rank = 0;
  std::shared_ptr<Store> store;
  std::mutex mutex;  // guards everything below
  std::condition_variable changed;
  std::function<RankState()> state;  // null: answer no more
  uint64_t heard = 0;                // questions received
  bool over = false;

  void run();
  std::string next_question() const { return fmt::format("stall/ask/{}/{}", rank, heard); }
};

StallMonitor::StallMonitor(const Options& options, std::shared_ptr<Store> store, Events events)
    : watch_(std::make_shared<Watch>()),
      asleep_(&watch_->asleep),
      answers_(std::make_shared<Answers>()) {
  answers_->rank = options.rank;
  answers_->store = store;
  answers_->state = events.state;
  watch_->options = options;
  watch_->store = std::move(store);
  watch_->events = std::move(events);
  std::thread([watch = watch_] {
    pthread_setname_np(pthread_self(), "hrn-stall");
    watch->run();
    const std::lock_guard lock(watch->mutex);
    watch->over = true;
    watch->changed.notify_all();
  }).detach();
  std::thread([answers = answers_] {
    pthread_setname_np(pthread_self(), "hrn-answer");
    answers->run();
    const std::lock_guard lock(answers->mutex);
    answers->over = true;
    answers->changed.notify_all();
  }).detach();
}

StallMonitor::~StallMonitor() {
  {
    std::unique_lock lock(watch_->mutex);
    watch_->stops = true;
    watch_->changed.notify_all();
    watch_->changed.wait(lock, [&] { return watch_->over || watch_->asks; });
  }
  std::unique_lock lock(answers_->mutex);
  answers_->state = nullptr;
  // Asking a question of our own ends the wait for one.
  std::thread([answers = answers_, question = answers_->next_question()] {
    try {
      answers->store->set(question, "", Deadline::after(kFarewell));
    } catch (const std::exception&) {  // the store is gone, and with it the wait
    }
  }).detach();
  answers_->changed.wait_for(lock, kFarewell, [&] { return answers_->over; });
}

void StallMonitor::wake_up() {
  const std::lock_guard lock(watch_->mutex);  // otherwise it may be about to sleep
  watch_->asleep = false;
  watch_->changed.notify_all();
}

void StallMonitor::Watch::run() {
  std::unique_lock lock(mutex);
  const auto tick = options.ask_after / 2;
  int idle = 0;
  while (!stops) {
    lock.unlock();
    const auto wait = events.longest();
    const bool long_wait = wait && Clock::now() - wait->since >= options.ask_after;
    if (long_wait) examine(*wait);
    lock.lock();
    if (stops) return;
    idle = wait ? 0 : idle + 1;
    if (idle >= 2) {  // nothing for a while: until something is submitted
      asleep = true;
      changed.wait(lock, [&] { return stops || !asleep; });
      idle = 0;
    } else {
      changed.wait_for(lock, tick);
    }
  }
}

void StallMonitor::Watch::examine(const LongWait& wait) {
  std::vector<int> others;
  for (const int rank : wait.ranks) {
    if (rank != options.rank) others.push_back(rank);
  }
  if (!set_asks(true)) return;
  const auto answers = ask(others);
  if (!set_asks(false)) return;
  std::vector<int> silent;
  for (size_t i = 0; i < others.size(); ++i) {
    if (!answers[i]) silent.push_back(others[i]);
  }
  const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - wait.since);
  const bool warns = waited >= options.warn_after && warned != wait.since;
  if (warns || !silent.empty()) events.warn(explain_wait(wait.name, waited, others, answers));
  if (warns) warned = wait.since;
  if (!silent.empty()) events.lost(silent);
}

// The store counts the questions to a rank, so that askers do not collide.
std::vector<std::optional<RankState>> StallMonitor::Watch::ask(const std::vector<int>& ranks) {
  std::vector<std::optional<RankState>> answers(ranks.size());
  const Deadline deadline = Deadline::after(options.silence);
  try {
    std::vector<std::string> keys;
    const uint64_t question = asked++;
    for (const int rank : ranks) {
      keys.push_back(fmt::format("stall/answer/{}/{}/{}", options.rank, question, rank));
      const int64_t number = store->add(fmt::format("stall/count/{}", rank), 1, deadline) - 1;
      store->set(fmt::format("stall/ask/{}/{}", rank, number), keys.back(), deadline);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      try {
        answers[i] = unpack_state(store->get(keys[i], deadline));
        store->remove(keys[i], deadline);
      } catch (const TimeoutError&) {  // silent so far
      }
    }
  } catch (const TimeoutError&) {  // the store does not answer, as below
  } catch (const Error&) {  // the store is gone: ranks cannot be polled, so none counts as silent
    std::fill(answers.begin(), answers.end(), RankState{.is_known = false});
  }
  // Without the rank that serves the store no other rank can be asked.
  const auto server = std::find(ranks.begin(), ranks.end(), options.store_rank);
  const bool hidden =
      server != ranks.end() && !answers[static_cast<size_t>(server - ranks.begin())];
  for (size_t i = 0; i < ranks.size() && hidden; ++i) {
    if (ranks[i] != options.store_rank && !answers[i]) answers[i] = RankState{.is_known = false};
  }
  return answers;
}

void StallMonitor::Answers::run() {
  std::unique_lock lock(mutex);
  while (state) {
    try {
      const std::string key = next_question();
      lock.unlock();
      const std::string reply = store->get(key, Deadline::after(std::chrono::hours(24)));
      lock.lock();
      if (!state) return;
      ++heard;
      const std::string own = pack_state(state());
      lock.unlock();
      const Deadline soon = Deadline::after(std::chrono::seconds(5));
      store->remove(key, soon);
      if (!reply.empty()) store->set(reply, own, soon);
    } catch (const TimeoutError&) {    // no question for a long time
    } catch (const std::exception&) {  // the store is gone
      return;
    }
    if (!lock.owns_lock()) lock.lock();
  }
}

}  // namespace horon
