#include "horon/runtime/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/runtime/process_set.h"

namespace horon {

RuntimeOptions runtime_options(const JobSettings& job_settings) {
  RuntimeOptions options;
  options.limits = {job_settings.bytes("first_bucket_bytes"), job_settings.bytes("bucket_bytes")};
  options.chunk_bytes = job_settings.bytes("chunk_bytes");
  options.timeout = job_settings.duration("stall_shutdown_time");
  options.stall.warn_after = job_settings.duration("stall_warning_time");
  options.log_level = parse_log_level(job_settings.text("log_level"));
  options.autotune_file = job_settings.text("autotune_file");
  options.timeline = job_settings.text("timeline");
  options.flight_folder = job_settings.text("flight_folder").empty()
                              ? std::filesystem::temp_directory_path().string()
                              : job_settings.text("flight_folder");
  return options;
}

Runtime::Runtime(std::unique_ptr<Communicator> world, const RuntimeOptions& options)
    : heirloom_(std::make_unique<Heirloom>()),
      recorder_(std::make_shared<Recorder>(world->rank())) {
  attach(std::move(world), options, nullptr);
}

void Runtime::attach(std::unique_ptr<Communicator> world, const RuntimeOptions& options,
                     const Heirloom* heirloom) {
  world_ = std::move(world);
  options_ = options;
  recorder_->set_rank(world_->rank());
  if (!options_.warn) {
    const Log log(options_.log_level, fmt::format("rank {}/{}", world_->rank(), world_->size()));
    options_.warn = [log](const std::string& line) { log.warn("{}", line); };
  }
  std::vector<int> all(static_cast<size_t>(world_->size()));
  std::iota(all.begin(), all.end(), 0);
  if (options_.codec_threads == 0)
    options_.codec_threads = std::min(4, static_cast<int>(usable_cores().size()));
  const auto on_begin = [this] {
    if (monitor_) monitor_->wake();
  };
  world_ledger_ = std::make_unique<Ledger>(Ledger::Options{3, recorder_, on_begin});
  world_ledger_->watch(*world_);
  begin_tuning();
  next_set_ = 0;
  sets_[next_set_++] = make_set(all, heirloom);
  tries_.clear();  // other sets are not tuned
  if (!options_.timeline.empty()) start_timeline(options_.timeline);
  if (!options_.store || world_->size() == 1) return;
  StallMonitor::Options stall = options_.stall;
  stall.rank = world_->rank();
  monitor_ = std::make_unique<StallMonitor>(
      stall, make_prefix_store(options_.store, "runtime/"),
      StallMonitor::Events{[this] { return longest_wait(); }, [this] { return own_state(); },
                           options_.warn,
                           [this](const std::vector<int>& ranks) { world_->give_up_on(ranks); }});
}

BucketMemory Runtime::rebind(std::unique_ptr<Communicator> next, const RuntimeOptions& options) {
  monitor_.reset();
  if (sets_.contains(0)) {  // else the last one failed before there was anything to inherit from
    past_ = counters();
    past_.waited_us.clear();  // rank numbers have changed
    Set& old = *sets_.at(0);
    *heirloom_ = {old.bulk->retire(), old.urgent->retire(), old.urgent_names, old.codec_memory};
  }
  sets_.clear();  // sub-communicators are destroyed before the communicator
  try {
    recorder_->stop_timeline();
  } catch (const IoError& error) {
    options_.warn(fmt::format("timeline: {}", error.what()));
  }
  world_.reset();
  attach(std::move(next), options, heirloom_.get());
  bool kept = true;
  const auto set = find_set(0);
  BucketMemory memory = declare(*set, declared_, kept);
  if (kept) set->urgent_names = heirloom_->urgent_names;
  return memory;
}

Runtime::~Runtime() = default;

void Runtime::keep_tuning(const Tuning& found) const {
  try {
    write_tuning(options_.autotune_file,
                 fmt::format("{} ranks, {}", world_->size(), world_->backend()), found);
    options_.warn(fmt::format("autotune: buckets of {}, {} threads for codecs, kept in {}",
                              format_bytes(found.bucket_bytes), found.codec_threads,
                              options_.autotune_file));
  } catch (const IoError& error) {
    options_.warn(fmt::format("autotune: {}", error.what()));
  }
}

// Rank 0's file decides; the others need not have it.
void Runtime::begin_tuning() {
  if (options_.autotune_file.empty()) return;
  const std::string job = fmt::format("{} ranks, {}", world_->size(), world_->backend());
  const Tuning found = read_tuning(options_.autotune_file, job).value_or(Tuning{0, 0});
  std::array<int64_t, 2> known = {static_cast<int64_t>(found.bucket_bytes), found.codec_threads};
  world_->broadcast(view_of(known), 0, {.name = "autotune"});
  if (known[0] > 0) {
    options_.limits.bucket_bytes = static_cast<uint64_t>(known[0]);
    options_.codec_threads = static_cast<int>(known[1]);
    return;
  }
  for (const uint64_t megabytes : {4, 10, 25, 60, 120}) tries_.push_back(megabytes << 20);
}

void Runtime::dump_last() const {
  if (options_.flight_folder.empty()) return;
  const std::string path = fmt::format("{}/horon-last-operations.{}.rank{}.txt",
                                       options_.flight_folder, getpid(), world_->rank());
  std::ofstream file(path, std::ios::trunc);
  file << recorder_->describe();
  file.close();
  options_.warn(file ? fmt::format("the last operations of this rank are in {}", path)
                     : fmt::format("the last operations cannot be written to {}", path));
}

std::optional<LongWait> Runtime::longest_wait() const {
  std::optional<LongWait> found;
  const auto consider = [&](const auto& oldest, const std::vector<int>& ranks) {
    if (oldest && (!found || oldest->second < found->since))
      found = {oldest->first, oldest->second, ranks};
  };
  consider(world_ledger_->oldest(), world_->members());
  const std::lock_guard lock(mutex_);
  for (const auto& [number, set] : sets_) {
    if (!set->bulk) continue;
    for (const auto& lane : {set->bulk, set->urgent}) consider(lane->oldest(), set->ranks);
    consider(set->unnamed->ledger().oldest(), set->ranks);
  }
  return found;
}

RankState Runtime::own_state() const {
  RankState state;
  world_ledger_->describe(state);
  const std::lock_guard lock(mutex_);
  for (const auto& [number, set] : sets_) {
    if (!set->bulk) continue;
    for (const auto& lane : {set->bulk, set->urgent}) lane->describe(state);
    set->unnamed->ledger().describe(state);
  }
  return state;
}

int Runtime::rank() const { return world_->rank(); }
int Runtime::size() const { return world_->size(); }

// Names that the ranks have not agreed on go to the bulk lane, where they meet.
Lane& Runtime::Set::lane_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  return urgent_names.contains(name) ? *urgent : *bulk;
}

void Runtime::Set::note_class(const TensorSpec& spec) {
  const std::lock_guard lock(mutex);
  if (spec.is_urgent()) {
    urgent_names.insert(spec.name);
  } else {
    urgent_names.erase(spec.name);
  }
}

std::shared_ptr<Lane> Runtime::make_lane(const std::shared_ptr<Set>& set, bool urgent,
                                         const Heirloom* heirloom) {
  Lane::Options options;
  options.limits = options_.limits;
  options.mover = set->moves;
  options.mover.urgent = urgent;
  options.name = urgent ? "hrn-urgent" : "hrn-bulk";
  options.number = urgent ? 1 : 0;
  options.recorder = recorder_;
  options.on_submit = [this] {
    if (monitor_) monitor_->wake();
  };
  options.warn = options_.warn;
  options.on_death = [this] { dump_last(); };
  if (!urgent) options.tries = tries_;
  options.on_tuned = [this](const Tuning& found) { keep_tuning(found); };
  options.on_other_class = [at = std::weak_ptr(set)](const TensorSpec& spec) {
    if (const auto owner = at.lock()) owner->note_class(spec);
  };
  if (heirloom != nullptr) options.plan = urgent ? heirloom->urgent : heirloom->bulk;
  return std::make_shared<Lane>(world_->sub_communicator(set->ranks), options);
}

// Each lane and the unnamed operations have a sub-communicator of their own: they do not block each
// other, and each has one order.
std::shared_ptr<Runtime::Set> Runtime::make_set(const std::vector<int>& ranks,
                                                const Heirloom* heirloom) {
  auto set = std::make_shared<Set>();
  set->ranks = ranks;
  if (std::find(ranks.begin(), ranks.end(), world_->rank()) == ranks.end()) return set;
  Mover::Options& moves = set->moves;
  moves.timeout = options_.timeout;
  moves.chunk_bytes = options_.chunk_bytes;
  moves.gate = std::make_shared<Gate>();
  moves.codec_threads = options_.codec_threads;
  moves.codecs = options_.codecs;
  set->codec_memory = heirloom != nullptr && heirloom->codec_memory
                          ? heirloom->codec_memory
                          : std::make_shared<CodecMemory>();
  moves.memory = set->codec_memory;
  set->bulk = make_lane(set, false, heirloom);
  set->urgent = make_lane(set, true, heirloom);
  const auto on_begin = [this] {
    if (monitor_) monitor_->wake();
  };
  set->unnamed = std::make_shared<Sequence>(world_->sub_communicator(ranks), moves,
                                            Ledger::Options{2, recorder_, on_begin});
  return set;
}

std::shared_ptr<Runtime::Set> Runtime::find_set(int number) const {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(number);
  if (found == sets_.end()) throw UsageError(fmt::format("there is no process set {}", number));
  if (!found->second->bulk) {
    throw UsageError(fmt::format("rank {} is not in process set {}", world_->rank(), number));
  }
  return found->second;
}

BucketMemory Runtime::allocate_buckets(const std::vector<TensorSpec>& specs) {
  bool kept = false;
  BucketMemory memory = declare(*find_set(0), specs, kept);
  declared_ = specs;
  return memory;
}

// Declares to both lanes, even an empty list: a rank that calls a tensor urgent must meet one that
// does not. `kept`: both lanes continue with their earlier plans.
BucketMemory Runtime::declare(Set& set, const std::vector<TensorSpec>& specs, bool& kept) {
  BucketMemory memory;
  memory.views.resize(specs.size());
  for (const bool urgent : {false, true}) {
    std::vector<TensorSpec> some;
    std::vector<size_t> places;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].is_urgent() != urgent) continue;
      some.push_back(specs[i]);
      places.push_back(i);
    }
    std::vector<BufferView> views;
    kept = (urgent ? set.urgent : set.bulk)->declare(some, memory.buckets, views) && kept;
    for (size_t i = 0; i < places.size(); ++i) memory.views[places[i]] = views[i];
  }
  const std::lock_guard lock(set.mutex);
  set.declared_urgent.clear();
  for (const TensorSpec& spec : specs) {
    if (spec.is_urgent()) set.declared_urgent.insert(spec.name);
  }
  set.urgent_names = set.declared_urgent;
  return memory;
}

// Joins everywhere at once: the others may be at any of them.
int Runtime::join(int number) {
  const auto set = find_set(number);
  set->bulk->require_idle("join");
  set->urgent->require_idle("join");
  std::vector<std::future<int>> others;
  others.push_back(std::async(std::launch::async, [&] { return set->urgent->join(); }));
  others.push_back(std::async(std::launch::async, [&] { return set->unnamed->join(); }));
  if (number == 0)
    others.push_back(std::async(std::launch::async, [&] {
      return world_->join({.name = "join", .timeout = options_.timeout});
    }));
  const int last = set->bulk->join();
  for (auto& other : others) other.get();
  // Ranks that joined first do not know what the others have agreed on since.
  const std::lock_guard lock(set->mutex);
  set->urgent_names = set->declared_urgent;
  return last;
}

// Compares a list on all ranks: returns the common list, or UsageError on all.
std::vector<int64_t> Runtime::compare(const std::string& doing, std::vector<int64_t> mine) const {
  const Gathered all =
      world_->all_gather(view_of(mine), {.name = doing, .timeout = options_.timeout});
  const auto given = all.data.as<int64_t>();
  std::string text;
  bool same = true;
  uint64_t at = 0;
  for (size_t rank = 0; rank < all.counts.size(); ++rank) {
    const auto one = given.subspan(at, all.counts[rank]);
    at += all.counts[rank];
    same = same && std::ranges::equal(one, mine);
    text += fmt::format("{}rank {}: {}", rank == 0 ? "" : "; ", rank,
                        one.empty() ? "has joined" : fmt::format("{}", fmt::join(one, ", ")));
  }
  if (!same)
    throw UsageError(fmt::format("{}: ranks requested different process sets: {}", doing, text),
                     ExitCode::kMismatch);
  return mine;
}

int Runtime::add_process_set(const std::vector<int>& ranks) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  // An empty list would look like that of a rank that has joined.
  compare("add_process_set", sorted.empty() ? std::vector<int64_t>{-1}
                                            : std::vector<int64_t>(sorted.begin(), sorted.end()));
  require(!sorted.empty() && sorted.front() >= 0 && sorted.back() < world_->size() &&
              std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
          fmt::format("add_process_set: ranks {} of {}: each once, and at least one",
                      fmt::join(sorted, ", "), world_->size()));
  auto made = make_set(sorted);
  const std::lock_guard lock(mutex_);
  sets_[next_set_] = std::move(made);
  return next_set_++;
}

bool Runtime::remove_process_set(int set) {
  compare("remove_process_set", {set});
  std::shared_ptr<Set> removed;  // its threads end after our lock is released
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(set);
  if (set == 0 || found == sets_.end()) return false;
  removed = std::move(found->second);
  sets_.erase(found);
  return true;
}

std::vector<int> Runtime::process_set(int set) const {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(set);
  require(found != sets_.end(), fmt::format("there is no process set {}", set));
  return found->second->ranks;
}

std::vector<int> Runtime::process_sets() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> numbers;
  for (const auto& [number, set] : sets_) numbers.push_back(number);
  return numbers;
}

// Barriers end at nearly the same moment on all ranks; the median of several is accurate enough.
void Runtime::start_timeline(const std::string& path) {
  std::vector<int64_t> sync;
  for (int i = 0; i < 9; ++i) {
    world_->barrier({.name = "timeline"});
    sync.push_back(trace_now());
  }
  recorder_->start_timeline(fmt::format("{}.{}", path, world_->rank()), sync);
}

CodecStates Runtime::save_codec_state(int set) const {
  const auto found = find_set(set);
  for (const auto& lane : {found->bulk, found->urgent}) lane->require_idle("save_codec_state");
  return found->codec_memory->save(world_->device());
}

void Runtime::restore_codec_state(const CodecStates& states, int set) {
  const auto found = find_set(set);
  for (const auto& lane : {found->bulk, found->urgent}) lane->require_idle("restore_codec_state");
  found->codec_memory->restore(states);
}

void Runtime::stop_timeline() { recorder_->stop_timeline(); }
std::string Runtime::describe_last() const { return recorder_->describe(); }

RuntimeCounters Runtime::counters() const {
  RuntimeCounters sum = past_;
  sum += world_ledger_->counters();
  const std::lock_guard lock(mutex_);
  for (const auto& [number, set] : sets_) {
    if (!set->bulk) continue;
    for (const auto& lane : {set->bulk, set->urgent}) sum += lane->counters();
    sum += set->unnamed->ledger().counters();
  }
  return sum;
}

}  // namespace horon
