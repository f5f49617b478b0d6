#pragma once

#include <string>
#include <vector>

#include "horon/base/time.h"

// How a job ends, decided. Pure.
namespace horon::launch {

struct RankFailure {
  int rank = 0;
  std::string host;
  int status = 0;       // as waitpid gives it
  std::string problem;  // why it never ran
  Clock::time_point at{};
  bool was_told = false;  // to stop, before it ended
};

// Whom to blame: the first that failed, but when one loses another, the loser may be heard first:
// within a second, a rank that complains of a lost peer (exit code 10) or that did as it was told
// yields to one that failed by itself. Not empty.
const RankFailure& choose_culprit(const std::vector<RankFailure>& failures);

// "rank 3 on b was killed by signal 9 (Killed)"
std::string describe_failure(const RankFailure& failure);

}  // namespace horon::launch
