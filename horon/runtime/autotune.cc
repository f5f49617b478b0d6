#include "horon/runtime/autotune.h"

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

}  // namespace

BucketTuner::BucketTuner(uint64_t start, std::vector<uint64_t> candidates, int steps_each)
    : steps_each_(steps_each) {
  tries_.push_back({start, {}});
  for (const uint64_t bytes : candidates) {
    if (bytes != start) tries_.push_back({bytes, {}});
  }
}

uint64_t BucketTuner::current() const { return tries_[std::min(at_, tries_.size() - 1)].bytes; }

bool BucketTuner::add(double seconds) {
  if (done()) return false;
  if (step_ >= kWarmUp) tries_[at_].seconds.push_back(seconds);
  if (++step_ < kWarmUp + steps_each_) return false;
  step_ = 0;
  ++at_;
  return true;
}

uint64_t BucketTuner::best() const {
  const Try* best = &tries_.front();
  double limit = 0.97 * median(best->seconds);
  for (const Try& one : tries_) {
    if (median(one.seconds) >= limit) continue;
    best = &one;
    limit = median(one.seconds);
  }
  return best->bytes;
}

uint64_t read_tuning(const std::string& path, const std::string& job) {
  const nlohmann::json all = read_all(path);
  const auto found = all.find(job);
  return found != all.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

void write_tuning(const std::string& path, const std::string& job, uint64_t bucket_bytes) {
  nlohmann::json all = read_all(path);
  all[job] = bucket_bytes;
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::trunc);
  file << all.dump(1) << "\n";
  file.close();
  if (!file) throw io_error("write " + fresh);
  std::filesystem::rename(fresh, path);
}

}  // namespace horon
