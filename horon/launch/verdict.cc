#include "horon/launch/verdict.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include "horon/base/exit_code.h"
#include "horon/launch/process.h"

namespace horon::launch {

const RankFailure& choose_culprit(const std::vector<RankFailure>& failures) {
  const RankFailure& first = failures.front();
  for (const RankFailure& failure : failures) {
    if (failure.at - first.at > std::chrono::seconds(1)) break;
    const bool complains = WIFEXITED(failure.status) &&
                           WEXITSTATUS(failure.status) == static_cast<int>(ExitCode::kPeer);
    if (!complains && !failure.was_told) return failure;
  }
  return first;
}

std::string describe_failure(const RankFailure& failure) {
  if (!failure.problem.empty())
    return fmt::format("rank {} on {}: {}", failure.rank, failure.host, failure.problem);
  const bool killed = WIFSIGNALED(failure.status) && WTERMSIG(failure.status) == SIGKILL;
  return fmt::format("rank {} on {} {}{}", failure.rank, failure.host,
                     describe_status(failure.status),
                     killed ? "; was the host out of memory?" : "");
}

}  // namespace horon::launch
