#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/runtime/plan.h"

// What ranks do when a step is not as planned: each says what it has, all decide the same. Pure.
namespace horon {

struct Report {
  std::vector<TensorSpec> pending;  // in the order of submission
  bool stuck = false;               // somebody waits for a part of a bucket that is not whole
  bool fresh = false;               // something is in it that was not in the last one
};

std::string pack_report(const Report& report);
Report unpack_report(std::string_view bytes);

struct Decision {
  std::vector<TensorSpec> run;               // everybody has them; in this order
  std::map<std::string, std::string> wrong;  // name -> the error that every rank gives it
  std::vector<std::string> skipped;          // due, but nobody has them
  bool progress = false;  // something was decided, or somebody said something new
};

// reports[i] is of the rank ranks[i]; ranks that have joined are not among them. What is not in the
// plan, and whole buckets, run as soon as all have them; parts of buckets only if a rank is stuck.
Decision decide(std::span<const Report> reports, std::span<const int> ranks, const Plan& plan);

}  // namespace horon
