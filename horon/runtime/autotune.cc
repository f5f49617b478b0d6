#include "horon/runtime/autotune.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/fd.h"

namespace horon {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

nlohmann::json read_all(const std::string& path) {
  try {
    nlohmann::json all = nlohmann::json::parse(read_small_file(path), nullptr, false);
    if (all.is_object()) return all;
  } catch (const IoError&) {  // not there yet
  }
  return nlohmann::json::object();
}

// Numbers of threads are tried only if something is encoded.
std::vector<Tuning> candidates(const std::vector<uint64_t>& sizes, const Plan& plan,
                               int codec_threads) {
  bool encodes = false;
  for (const Bucket& bucket : plan.buckets())
    encodes = encodes || !plan.tensor(bucket.tensors.front()).codec.empty();
  std::vector<Tuning> candidates;
  for (const uint64_t bytes : sizes) {
    for (const int threads : {1, 2, 4}) {
      if (encodes || threads == codec_threads) candidates.push_back({bytes, threads});
    }
  }
  return candidates;
}

}  // namespace

Tuner::Tuner(const Tuning& start, const std::vector<Tuning>& candidates, int steps_each)
    : steps_each_(steps_each) {
  tries_.push_back({start, {}});
  for (const Tuning& one : candidates) {
    if (one != start) tries_.push_back({one, {}});
  }
}

const Tuning& Tuner::current() const { return tries_[std::min(at_, tries_.size() - 1)].setting; }

bool Tuner::add(double seconds) {
  if (done()) return false;
  if (step_ >= kWarmUp) tries_[at_].seconds.push_back(seconds);
  if (++step_ < kWarmUp + steps_each_) return false;
  step_ = 0;
  ++at_;
  return true;
}

const Tuning& Tuner::best() const {
  const Try* best = &tries_.front();
  double limit = 0.97 * median(best->seconds);
  for (const Try& one : tries_) {
    if (median(one.seconds) >= limit) continue;
    best = &one;
    limit = median(one.seconds);
  }
  return best->setting;
}

std::optional<Tuning> LaneTuner::end_step(Clock::time_point now, const Plan& plan,
                                          int codec_threads) {
  const double seconds = std::chrono::duration<double>(now - step_began_).count();
  step_began_ = now;
  if (version_ != plan.version()) {  // other tensors: what was measured is worth nothing
    tuner_.emplace(Tuning{limits_.bucket_bytes, codec_threads},
                   candidates(sizes_, plan, codec_threads));
    version_ = plan.version();
    return std::nullopt;
  }
  if (!tuner_ || !tuner_->add(seconds)) return std::nullopt;
  return tuner_->done() ? tuner_->best() : tuner_->current();
}

void LaneTuner::use(const Tuning& tuning, Plan& plan) {
  PlanLimits limits = limits_;
  limits.bucket_bytes = tuning.bucket_bytes;
  plan.set_limits(limits);
  version_ = plan.version();
}

std::optional<Tuning> read_tuning(const std::string& path, const std::string& job) {
  const nlohmann::json all = read_all(path);
  const auto found = all.find(job);
  if (found == all.end() || !found->is_object()) return std::nullopt;
  const auto number = [&](const char* key) {
    const auto at = found->find(key);
    return at != found->end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
  };
  const Tuning tuning{number("bucket_bytes"), static_cast<int>(number("codec_threads"))};
  if (tuning.bucket_bytes == 0 || tuning.codec_threads < 1) return std::nullopt;
  return tuning;
}

void write_tuning(const std::string& path, const std::string& job, const Tuning& found) {
  nlohmann::json all = read_all(path);
  all[job] = {{"bucket_bytes", found.bucket_bytes}, {"codec_threads", found.codec_threads}};
  const std::string fresh = fmt::format("{}.{}.new", path, getpid());
  std::ofstream file(fresh, std::ios::trunc);
  file << all.dump(1) << "\n";
  file.close();
  if (!file) throw io_error("write " + fresh);
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  if (error) throw IoError(fmt::format("rename {} to {}: {}", fresh, path, error.message()));
}

}  // namespace horon
