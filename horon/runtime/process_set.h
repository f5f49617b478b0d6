#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "horon/runtime/lane.h"
#include "horon/runtime/runtime.h"
#include "horon/runtime/sequence.h"

namespace horon {

// A set of ranks and its operations: two lanes for named ones and a sequence for those without a
// name. Thread-safe where `mutex` says so; the rest is set once.
struct Runtime::Set {
  std::vector<int> ranks;
  std::shared_ptr<Lane> bulk;                    // null: this rank is not a member
  std::shared_ptr<Lane> urgent;                  // operations with a priority
  std::shared_ptr<Sequence> unnamed;             // operations without a name
  std::shared_ptr<CodecMemory> codec_memory;     // shared by the three
  Mover::Options moves;                          // of the three
  std::mutex mutex;                              // guards the two below
  std::unordered_set<std::string> urgent_names;  // agreed on by all ranks
  std::unordered_set<std::string> declared_urgent;

  Lane& lane_of(const std::string& name);
  void note_class(const TensorSpec& spec);
};

struct Runtime::Heirloom {
  Plan bulk{PlanLimits{}};
  Plan urgent{PlanLimits{}};
  std::unordered_set<std::string> urgent_names;
  std::shared_ptr<CodecMemory> codec_memory;
};

}  // namespace horon
