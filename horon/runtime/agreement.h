#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/runtime/plan.h"

// The agreement: how ranks decide what to run when a step does not follow the plan. Each rank sends
// a report; all ranks reach the same decision from the same reports. Pure functions, any thread.
namespace horon {

// What one rank sends to an agreement.
struct PendingReport {
  std::vector<TensorSpec> pending;  // in the order of submission
  bool stuck = false;               // a thread waits for part of an incomplete bucket
  bool fresh = false;               // contains something that was not in the previous report
};

std::string pack_report(const PendingReport& report);
// Throws Error (exit code 10) for bytes that pack_report would not produce.
PendingReport unpack_report(std::string_view bytes);

// The result of an agreement, equal on all ranks.
struct Decision {
  std::vector<TensorSpec> run;               // submitted by all ranks; run in this order
  std::map<std::string, std::string> wrong;  // name -> error message, the same on all ranks
  std::vector<std::string> skipped;          // due, but submitted by no rank
  bool progress = false;                     // something was decided, or a report was fresh
};

// reports[i] belongs to rank ranks[i]; ranks that have joined are left out. Operations outside the
// plan and complete buckets run as soon as all ranks have them; parts of buckets run only if a rank
// is stuck.
Decision decide(std::span<const PendingReport> reports, std::span<const int> ranks,
                const Plan& plan);

// The operations of a decision that share one collective.
struct AgreedTransfer {
  int bucket = -1;                 // bucket of the plan, all of it; -1: a single operation
  std::vector<std::string> names;  // in the order of the bucket
};

// Splits a decision into transfers, in its order: complete buckets as buckets, the rest one by one.
std::vector<AgreedTransfer> split_decision(const Decision& decision, const Plan& plan);

}  // namespace horon
