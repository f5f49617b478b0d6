#include "horon/runtime/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr uint64_t kAlignment = 64;

// Rounds up to the next position in a bucket for elements of this size.
uint64_t aligned(uint64_t count, size_t element) {
  const uint64_t step = std::max<uint64_t>(1, kAlignment / element);
  return (count + step - 1) / step * step;
}

uint64_t key_of(const Bucket& bucket, std::span<const TensorSpec> specs) {
  uint64_t key = 1;
  for (const size_t i : bucket.tensors)
    key = hash_text(fmt::format("{} {} {}", describe(specs[i]), key, specs[i].device.index));
  return key;
}

// Number of irregular tensors that are remembered.
constexpr size_t kRemembered = 256;

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const TensorSpec> specs, const PlanLimits& limits) {
  std::vector<Bucket> done;
  std::vector<Bucket> open;  // at most one for each kind of tensors that can be fused
  const auto bytes = [&](const Bucket& bucket) {
    return bucket.count * size_of(specs[bucket.tensors.front()].dtype);
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    auto found = std::find_if(open.begin(), open.end(), [&](const Bucket& bucket) {
      return can_fuse(specs[bucket.tensors.front()], specs[i]);
    });
    if (found == open.end()) found = open.insert(open.end(), Bucket());
    Bucket& bucket = *found;
    bucket.offsets.push_back(aligned(bucket.count, size_of(specs[i].dtype)));
    bucket.tensors.push_back(i);
    bucket.count = bucket.offsets.back() + specs[i].count;
    const uint64_t limit =
        done.empty() ? std::min(limits.first_bytes, limits.bucket_bytes) : limits.bucket_bytes;
    if (bytes(bucket) < limit && can_fuse(specs[i], specs[i])) continue;
    done.push_back(std::move(bucket));
    open.erase(found);
  }
  for (Bucket& bucket : open) done.push_back(std::move(bucket));
  for (Bucket& bucket : done) bucket.key = key_of(bucket, specs);
  std::stable_sort(done.begin(), done.end(), [](const Bucket& a, const Bucket& b) {
    return a.tensors.back() < b.tensors.back();
  });
  return done;
}

void Plan::set_limits(const PlanLimits& limits) {
  limits_ = limits;
  rebuild("", true);
}

void Plan::declare(const std::vector<TensorSpec>& specs) {
  std::unordered_map<std::string, size_t> index;
  for (const TensorSpec& spec : specs)
    require(index.emplace(spec.name, index.size()).second,
            "the name '" + spec.name + "' is declared twice");
  declared_specs_ = specs;
  declared_ = plan_buckets(specs, limits_);
  restart();
}

void Plan::restart() {
  known_.clear();
  index_.clear();
  for (const TensorSpec& spec : declared_specs_) {
    index_.emplace(spec.name, known_.size());
    known_.push_back({.spec = spec, .regular = true, .declared = true});
  }
  expected_ = 0;
  rebuild("", true);
}

void Plan::begin_step() {
  expected_ = 0;
  round_ = 1;
  for (Known& known : known_) known.round = 0;
}

uint64_t Plan::digest() const {
  std::string text = fmt::format("{} {}", limits_.first_bytes, limits_.bucket_bytes);
  for (const Known& known : known_)
    text += fmt::format("\n{} {} {} {} {} {}", describe(known.spec), known.regular, known.declared,
                        known.strikes, known.runs, known.last);
  return std::max<uint64_t>(hash_text(text), 1);
}

void Plan::learn(const std::vector<TensorSpec>& run, const std::vector<std::string>& skipped) {
  std::string last;
  bool changed = false;
  const auto has_run = [&](const TensorSpec& spec) {
    const auto found = index_.find(spec.name);
    return found != index_.end() && known_[found->second].regular &&
           known_[found->second].round == round_;
  };
  // The step begins again. (An irregular tensor may run after the last bucket of its step, so it
  // shows nothing.)
  if (std::any_of(run.begin(), run.end(), has_run)) ++round_;
  for (const std::string& name : skipped) {
    Known& known = known_[index_.at(name)];
    changed = changed || known.regular;
    known.regular = false;
    known.strikes = std::min(known.strikes + 1, 16);
    known.runs = 0;
  }
  for (const TensorSpec& spec : run) {
    const auto [at, fresh] = index_.emplace(spec.name, known_.size());
    if (fresh) known_.push_back({.spec = spec});
    Known& known = known_[at->second];
    changed = changed || (known.regular && !same_request(known.spec, spec));
    known.spec = spec;
    known.last = ++clock_;
    known.round = round_;
    if (known.regular) {
      last = spec.name;
    } else if (++known.runs >= 2 << known.strikes) {
      known.regular = true;
      changed = true;
    }
  }
  if (changed || !last.empty()) rebuild(last);
  forget();
}

// Forgets those not seen for longest, once there are twice as many as are remembered.
void Plan::forget() {
  const auto passing = [](const Known& known) { return !known.regular && !known.declared; };
  std::vector<uint64_t> times;
  if (known_.size() <= declared_specs_.size() + regular_.size() + 2 * kRemembered) return;
  for (const Known& known : known_) {
    if (passing(known)) times.push_back(known.last);
  }
  if (times.size() <= 2 * kRemembered) return;
  const auto oldest = times.end() - static_cast<ptrdiff_t>(kRemembered);
  std::nth_element(times.begin(), oldest, times.end());
  std::erase_if(known_, [&](const Known& known) { return passing(known) && known.last < *oldest; });
  index_.clear();
  for (size_t i = 0; i < known_.size(); ++i) index_.emplace(known_[i].spec.name, i);
}

const TensorSpec* Plan::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &known_[found->second].spec;
}

int Plan::bucket_of(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? -1 : known_[found->second].bucket;
}

int Plan::bucket_for(const TensorSpec& spec) const {
  const auto found = index_.find(spec.name);
  if (found == index_.end()) return -1;
  const Known& known = known_[found->second];
  return same_request(known.spec, spec) ? known.bucket : -1;
}

std::vector<std::string> Plan::names_in(int bucket) const {
  std::vector<std::string> names;
  for (const size_t index : buckets_[static_cast<size_t>(bucket)].tensors)
    names.push_back(regular_[index].name);
  return names;
}

void Plan::advance() {
  for (const size_t index : buckets_[static_cast<size_t>(expected_)].tensors)
    known_[index_.at(regular_[index].name)].round = round_;
  expected_ = (expected_ + 1) % static_cast<int>(buckets_.size());
  if (expected_ == 0) ++round_;
}

std::vector<std::string> Plan::skipped_before(const std::string& last) const {
  std::vector<std::string> names;
  const int end = bucket_of(last);
  if (end < 0 || buckets_.empty()) return names;
  for (int at = expected_;; at = (at + 1) % static_cast<int>(buckets_.size())) {
    for (std::string& name : names_in(at)) {
      if (known_[index_.at(name)].round != round_) names.push_back(std::move(name));
    }
    if (at == end) return names;
  }
}

bool Plan::Known::is_at_home(const std::vector<TensorSpec>& declared_as, size_t index) const {
  return declared && regular && same_request(spec, declared_as[index]);
}

// Adds the declared buckets, split where a tensor does not occur.
void Plan::add_declared(std::vector<TensorSpec>& regular, std::vector<Bucket>& buckets) const {
  for (size_t home = 0; home < declared_.size(); ++home) {
    const Bucket& whole = declared_[home];
    bool begins = true;
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
      const Known& known = known_[whole.tensors[i]];
      if (!known.is_at_home(declared_specs_, whole.tensors[i])) {
        begins = true;
        continue;
      }
      if (std::exchange(begins, false)) {
        buckets.emplace_back();
        buckets.back().home = static_cast<int>(home);
        buckets.back().home_offset = whole.offsets[i];
      }
      Bucket& run = buckets.back();
      run.tensors.push_back(regular.size());
      run.offsets.push_back(whole.offsets[i] - run.home_offset);
      run.count = run.offsets.back() + known.spec.count;
      regular.push_back(known.spec);
    }
  }
}

// `after`: the regular tensor that ran last; the one that follows it is expected next.
void Plan::rebuild(const std::string& after, bool always) {
  std::vector<TensorSpec> regular;
  std::vector<Bucket> buckets;
  add_declared(regular, buckets);
  const size_t at_home = regular.size();
  for (size_t i = 0; i < known_.size(); ++i) {
    if (known_[i].regular && !known_[i].is_at_home(declared_specs_, i))
      regular.push_back(known_[i].spec);
  }
  if (always || regular != regular_) {
    regular_ = std::move(regular);
    buckets_ = std::move(buckets);
    const std::span<const TensorSpec> all(regular_);
    for (Bucket& bucket : buckets_) bucket.key = key_of(bucket, all);
    for (Bucket& bucket : plan_buckets(all.subspan(at_home), limits_)) {
      for (size_t& index : bucket.tensors) index += at_home;
      buckets_.push_back(std::move(bucket));
    }
    for (Known& known : known_) known.bucket = -1;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      for (const size_t index : buckets_[i].tensors)
        known_[index_.at(regular_[index].name)].bucket = static_cast<int>(i);
    }
    ++version_;
    expected_ = 0;
  }
  const int last = bucket_of(after);
  if (last >= 0) expected_ = (last + 1) % static_cast<int>(buckets_.size());
}

}  // namespace horon
