#include "horon/runtime/stall.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

// Longest wait for the thread that answers, when there is nothing more to answer.
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
    if (without.size() > 4) continue;  // the first few are enough to see
    details += answers[i]->last.empty()
                   ? fmt::format("; rank {} has finished nothing yet", ranks[i])
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
    text += ": all ranks have submitted it; is it behind something else?";
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

// What the thread needs that answers the others' questions.
struct StallMonitor::Answers {
  int rank = 0;
  std::shared_ptr<Store> store;
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::function<RankState()> state;  // null: no more answers
  uint64_t heard = 0;                // questions to us
  bool over = false;

  std::string next_question() const { return fmt::format("stall/ask/{}/{}", rank, heard); }
};

StallMonitor::StallMonitor(const Options& options, std::shared_ptr<Store> store, Events events)
    : options_(options),
      store_(std::move(store)),
      events_(std::move(events)),
      answers_(std::make_shared<Answers>()) {
  answers_->rank = options_.rank;
  answers_->store = store_;
  answers_->state = events_.state;
  watcher_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "hrn-stall");
    watch();
  });
  std::thread([answers = answers_] {
    pthread_setname_np(pthread_self(), "hrn-answer");
    answer(*answers);
    const std::lock_guard lock(answers->mutex);
    answers->over = true;
    answers->changed.notify_all();
  }).detach();
}

StallMonitor::~StallMonitor() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  std::unique_lock lock(answers_->mutex);
  answers_->state = nullptr;
  // A question of our own ends the wait for one.
  std::thread([answers = answers_, question = answers_->next_question()] {
    try {
      answers->store->set(question, "", Deadline::after(kFarewell));
    } catch (const std::exception&) {  // the store is gone, and with it the wait
    }
  }).detach();
  answers_->changed.wait_for(lock, kFarewell, [&] { return answers_->over; });
}

void StallMonitor::wake_up() {
  asleep_ = false;
  changed_.notify_all();
}

void StallMonitor::watch() {
  std::unique_lock lock(mutex_);
  const auto tick = options_.ask_after / 2;
  int idle = 0;
  while (!stops_) {
    lock.unlock();
    const auto wait = events_.longest();
    const bool long_wait = wait && Clock::now() - wait->since >= options_.ask_after;
    if (long_wait) examine(*wait);
    lock.lock();
    if (stops_) return;
    idle = wait ? 0 : idle + 1;
    if (idle >= 2) {  // nothing for a while: until something is submitted
      asleep_ = true;
      changed_.wait(lock, [&] { return stops_ || !asleep_; });
      idle = 0;
    } else {
      changed_.wait_for(lock, tick);
    }
  }
}

void StallMonitor::examine(const LongWait& wait) {
  std::vector<int> others;
  for (const int rank : wait.ranks) {
    if (rank != options_.rank) others.push_back(rank);
  }
  const auto answers = ask(others);
  std::vector<int> silent;
  for (size_t i = 0; i < others.size(); ++i) {
    if (!answers[i]) silent.push_back(others[i]);
  }
  const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - wait.since);
  const bool warns = waited >= options_.warn_after && warned_ != wait.since;
  if (warns || !silent.empty()) events_.warn(explain_wait(wait.name, waited, others, answers));
  if (warns) warned_ = wait.since;
  if (!silent.empty()) events_.lost(silent);
}

// Numbers of questions to a rank are counted by the store, so that askers do not collide.
std::vector<std::optional<RankState>> StallMonitor::ask(const std::vector<int>& ranks) {
  std::vector<std::optional<RankState>> answers(ranks.size());
  const Deadline deadline = Deadline::after(options_.silence);
  try {
    std::vector<std::string> keys;
    const uint64_t question = asked_++;
    for (const int rank : ranks) {
      keys.push_back(fmt::format("stall/answer/{}/{}/{}", options_.rank, question, rank));
      const int64_t number = store_->add(fmt::format("stall/count/{}", rank), 1, deadline) - 1;
      store_->set(fmt::format("stall/ask/{}/{}", rank, number), keys.back(), deadline);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      try {
        answers[i] = unpack_state(store_->get(keys[i], deadline));
        store_->remove(keys[i], deadline);
      } catch (const TimeoutError&) {  // silent so far
      }
    }
  } catch (const TimeoutError&) {  // the store does not answer, as below
  } catch (const Error&) {         // it is gone: nobody can be asked, so nobody is silent
    std::fill(answers.begin(), answers.end(), RankState{.is_known = false});
  }
  // Without the rank that serves the store nobody else can be asked.
  const auto server = std::find(ranks.begin(), ranks.end(), options_.store_rank);
  const bool hidden =
      server != ranks.end() && !answers[static_cast<size_t>(server - ranks.begin())];
  for (size_t i = 0; i < ranks.size() && hidden; ++i) {
    if (ranks[i] != options_.store_rank && !answers[i]) answers[i] = RankState{.is_known = false};
  }
  return answers;
}

void StallMonitor::answer(Answers& answers) {
  Store& store = *answers.store;
  std::unique_lock lock(answers.mutex);
  while (answers.state) {
    try {
      const std::string key = answers.next_question();
      lock.unlock();
      const std::string reply = store.get(key, Deadline::after(std::chrono::hours(24)));
      lock.lock();
      if (!answers.state) return;
      ++answers.heard;
      const std::string state = pack_state(answers.state());
      lock.unlock();
      const Deadline soon = Deadline::after(std::chrono::seconds(5));
      store.remove(key, soon);
      if (!reply.empty()) store.set(reply, state, soon);
    } catch (const TimeoutError&) {    // a quiet day
    } catch (const std::exception&) {  // the store is gone
      return;
    }
    if (!lock.owns_lock()) lock.lock();
  }
}

}  // namespace horon
