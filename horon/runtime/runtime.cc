#include "horon/runtime/runtime.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/log.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"

namespace horon {
namespace {

TensorSpec spec_of(const std::string& name, const Request& request, const NamedOptions& options,
                   uint64_t layout) {
  TensorSpec spec;
  spec.name = name;
  spec.kind = request.kind;
  spec.dtype = request.in.dtype;
  spec.count = request.in.count;
  spec.op = request.op;
  spec.reduction = request.reduction;
  spec.root = request.root;
  spec.prescale = options.prescale;
  spec.postscale = options.postscale;
  spec.priority = options.priority;
  spec.layout = layout;
  spec.device = request.in.device;
  const bool scales = options.prescale != 1.0 || options.postscale != 1.0;
  if (scales && !is_float(spec.dtype))
    throw UsageError("only floating types can be scaled: " + describe(spec));

  spec.codec = options.codec == "none" ? "" : options.codec;
  if (!spec.codec.empty()) {
    const bool fits = spec.kind == OpKind::kAllReduce && spec.dtype == DType::kF32 && layout == 0 &&
                      spec.reduction == Reduction::kFast &&
                      (spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage);
    if (!fits) {
      throw UsageError(fmt::format("codec {} is for a fast all_reduce of f32, sum or average: {}",
                                   spec.codec, describe(spec)));
    }
    make_codec(spec.codec);  // an unknown name is an error now
  }
  return spec;
}

uint64_t hash_counts(const std::vector<uint64_t>& counts) {
  return counts.empty() ? 0 : hash_bytes(counts.data(), counts.size() * sizeof(uint64_t));
}

ReduceOptions reduce_options(const NamedOptions& options) {
  ReduceOptions reduce;
  reduce.op = options.op;
  reduce.reduction = options.reduction;
  return reduce;
}

}  // namespace

RuntimeOptions runtime_options(const Knobs& knobs) {
  RuntimeOptions options;
  options.limits = {knobs.bytes("first_bucket_bytes"), knobs.bytes("bucket_bytes")};
  options.chunk_bytes = knobs.bytes("chunk_bytes");
  options.timeout = knobs.duration("stall_shutdown_time");
  options.stall.warn_after = knobs.duration("stall_warning_time");
  options.autotune_file = knobs.text("autotune_file");
  options.flight_folder = knobs.text("flight_folder").empty()
                              ? std::filesystem::temp_directory_path().string()
                              : knobs.text("flight_folder");
  return options;
}

Runtime::Runtime(std::unique_ptr<Communicator> world, const RuntimeOptions& options)
    : world_(std::move(world)),
      options_(options),
      recorder_(std::make_shared<Recorder>(world_->rank())) {
  if (!options_.warn) {
    const Log log(LogLevel::kWarn, fmt::format("rank {}/{}", world_->rank(), world_->size()));
    options_.warn = [log](const std::string& line) { log.warn("{}", line); };
  }
  std::vector<int> all(static_cast<size_t>(world_->size()));
  std::iota(all.begin(), all.end(), 0);
  if (options_.codec_threads == 0)
    options_.codec_threads = std::min(4, static_cast<int>(usable_cores().size()));
  begin_tuning();
  sets_[next_set_++] = make_set(all);
  tries_.clear();  // other sets are not tuned
  if (!options.store || world_->size() == 1) return;
  StallMonitor::Options stall = options.stall;
  stall.rank = world_->rank();
  monitor_ = std::make_unique<StallMonitor>(
      stall, make_prefix_store(options.store, "runtime/"),
      StallMonitor::Events{[this] { return longest_wait(); }, [this] { return own_state(); },
                           options_.warn,
                           [this](const std::vector<int>& ranks) { world_->give_up_on(ranks); }});
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

// Rank 0's file counts; the others need not have it.
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
  const std::lock_guard lock(mutex_);
  for (const auto& [number, set] : sets_) {
    for (const auto& lane : {set->bulk, set->urgent}) {
      const auto oldest = lane ? lane->oldest() : std::nullopt;
      if (oldest && (!found || oldest->second < found->since))
        found = {oldest->first, oldest->second, set->ranks};
    }
  }
  return found;
}

RankState Runtime::own_state() const {
  RankState state;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, set] : sets_) {
    for (const auto& lane : {set->bulk, set->urgent}) {
      if (lane) lane->describe(state);
    }
  }
  return state;
}

int Runtime::rank() const { return world_->rank(); }
int Runtime::size() const { return world_->size(); }

// Each lane and the unnamed operations have a group of their own: what runs in one does not hold up
// the others, and each has one order.
std::shared_ptr<Runtime::Set> Runtime::make_set(const std::vector<int>& ranks) {
  auto set = std::make_shared<Set>(Set{ranks, nullptr, nullptr, nullptr});
  const auto gate = std::make_shared<Gate>();
  for (const bool urgent : {false, true}) {
    auto comm = world_->group(ranks);
    if (!comm) continue;
    const Lane::Options options{options_.limits,
                                options_.timeout,
                                urgent ? "hrn-urgent" : "hrn-bulk",
                                static_cast<uint8_t>(urgent ? 1 : 0),
                                recorder_,
                                [this] {
                                  if (monitor_) monitor_->wake();
                                },
                                options_.warn,
                                [this] { dump_last(); },
                                urgent ? std::vector<uint64_t>() : tries_,
                                [this](const Tuning& found) { keep_tuning(found); },
                                gate,
                                urgent,
                                options_.chunk_bytes,
                                options_.codec_threads};
    (urgent ? set->urgent : set->bulk) = std::make_shared<Lane>(std::move(comm), options);
  }
  set->plain = world_->group(ranks);
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

Work Runtime::submit(const std::string& name, Request request, const NamedOptions& options,
                     bool blocks, uint64_t layout) {
  const auto set = find_set(options.set);
  if (name.empty()) {
    require(options.prescale == 1.0 && options.postscale == 1.0,
            "operations without a name are not scaled; give it one");
    const bool waits = request.kind == OpKind::kBarrier;
    request.timeout = waits ? kNoLimit : options_.timeout;
    if (!blocks) return set->plain->start(std::move(request));
    set->plain->run(request);
    return Work();
  }
  Lane& lane = options.priority > 0 ? *set->urgent : *set->bulk;
  TensorSpec spec = spec_of(name, request, options, layout);
  require(spec.device.is_cpu() || world_->device() != nullptr,
          "memory of a device needs the device's part; see `horon info`");

  if (!blocks) return lane.submit(std::move(spec), std::move(request));
  lane.run(std::move(spec), std::move(request));
  return Work();
}

Work Runtime::all_reduce(const std::string& name, BufferView data, const NamedOptions& options) {
  return submit(name, Request::all_reduce(data, reduce_options(options)), options, false);
}

Work Runtime::all_reduce(const std::string& name, const std::vector<BufferView>& parts,
                         const NamedOptions& options) {
  require(options.prescale == 1.0 && options.postscale == 1.0,
          "a group is not scaled; scale its parts");
  std::vector<Request> items;
  std::string layout;
  for (const BufferView& part : parts) {
    items.push_back(Request::all_reduce(part, reduce_options(options)));
    layout += fmt::format("{}[{}]", name_of(part.dtype), part.count);
  }
  return submit(name, Request::group(std::move(items)), options, false,
                std::max<uint64_t>(1, hash_text(layout)));
}

Work Runtime::all_reduce(const std::string& name, const ExactSum& sum, BufferView out,
                         const NamedOptions& options) {
  return submit(name, Request::all_reduce(sum, out, reduce_options(options)), options, false,
                std::max<uint64_t>(1, sum.shards()));
}

Work Runtime::reduce_scatter(const std::string& name, BufferView in, BufferView out,
                             std::vector<uint64_t> counts, const NamedOptions& options) {
  const uint64_t layout = hash_counts(counts);
  return submit(name, Request::reduce_scatter(in, out, std::move(counts), reduce_options(options)),
                options, false, layout);
}

Work Runtime::all_gather(const std::string& name, BufferView in, Gathered& gathered,
                         const NamedOptions& options) {
  return submit(name, Request::all_gather(in, gathered), options, false);
}

Work Runtime::broadcast(const std::string& name, BufferView data, int root,
                        const NamedOptions& options) {
  return submit(name, Request::broadcast(data, root), options, false);
}

Work Runtime::all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                         BufferView out, std::vector<uint64_t> receives,
                         const NamedOptions& options) {
  return submit(name, Request::all_to_all(in, std::move(sends), out, std::move(receives)), options,
                false);
}

Work Runtime::barrier(const std::string& name, const NamedOptions& options) {
  return submit(name, Request::barrier(), options, false);
}

void Runtime::run_all_reduce(const std::string& name, BufferView data,
                             const NamedOptions& options) {
  submit(name, Request::all_reduce(data, reduce_options(options)), options, true);
}

BucketMemory Runtime::allocate_buckets(const std::vector<TensorSpec>& specs) {
  BucketMemory memory;
  memory.buckets = find_set(0)->bulk->declare(specs, memory.views);
  return memory;
}

int Runtime::join(int set) { return find_set(set)->bulk->join(); }

int Runtime::add_process_set(const std::vector<int>& ranks) {
  auto made = make_set(ranks);
  world_->barrier({.name = "add_process_set"});
  const std::lock_guard lock(mutex_);
  sets_[next_set_] = std::move(made);
  return next_set_++;
}

bool Runtime::remove_process_set(int set) {
  world_->barrier({.name = "remove_process_set"});
  const std::lock_guard lock(mutex_);
  return set != 0 && sets_.erase(set) != 0;
}

std::vector<int> Runtime::process_set(int set) const {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(set);
  require(found != sets_.end(), fmt::format("there is no process set {}", set));
  return found->second->ranks;
}

// Barriers end at nearly the same moment everywhere; the middle one of several is near enough.
void Runtime::start_timeline(const std::string& path) {
  std::vector<int64_t> sync;
  for (int i = 0; i < 9; ++i) {
    world_->barrier({.name = "timeline"});
    sync.push_back(trace_now());
  }
  recorder_->start_timeline(fmt::format("{}.{}", path, world_->rank()), sync);
}

RuntimeCounters Runtime::counters() const {
  RuntimeCounters sum;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, set] : sets_) {
    for (const auto& lane : {set->bulk, set->urgent}) {
      if (!lane) continue;
      const RuntimeCounters one = lane->counters();
      sum.operations += one.operations;
      sum.collectives += one.collectives;
      sum.control_messages += one.control_messages;
      sum.bytes += one.bytes;
      sum.bytes_copied += one.bytes_copied;
      sum.overtaken += one.overtaken;
      sum.waited_us.resize(std::max(sum.waited_us.size(), one.waited_us.size()));
      for (size_t i = 0; i < one.waited_us.size(); ++i) sum.waited_us[i] += one.waited_us[i];
    }
  }
  return sum;
}

}  // namespace horon
