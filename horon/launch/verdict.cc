#include "horon/launch/verdict.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "horon/base/exit_code.h"
#include "horon/launch/process.h"

namespace horon::launch {
namespace {

bool ended_with(const RankFailure& failure, ExitCode code) {
  return WIFEXITED(failure.status) && WEXITSTATUS(failure.status) == static_cast<int>(code);
}

bool was_killed_by_us(const RankFailure& failure) {
  return WIFSIGNALED(failure.status) && std::find(failure.sent.begin(), failure.sent.end(),
                                                  WTERMSIG(failure.status)) != failure.sent.end();
}

}  // namespace

bool is_witness(const RankFailure& failure) {
  return failure.problem.empty() && ended_with(failure, ExitCode::kPeer);
}

bool is_misuse(const RankFailure& failure) {
  return failure.problem.empty() && ended_with(failure, ExitCode::kUsage);
}

bool ended_as_told(const RankFailure& failure) {
  if (failure.sent.empty() || !failure.problem.empty()) return false;
  return ended_with(failure, ExitCode::kInterrupted) ||
         std::any_of(failure.sent.begin(), failure.sent.end(),
                     [&](int signal) { return exit_status(failure.status) == 128 + signal; });
}

const RankFailure& choose_culprit(const std::vector<RankFailure>& failures) {
  const auto by_itself = std::find_if(
      failures.begin(), failures.end(),
      [](const RankFailure& failure) { return !is_witness(failure) && !ended_as_told(failure); });
  if (by_itself != failures.end()) return *by_itself;
  const auto witness = std::find_if(failures.begin(), failures.end(), is_witness);
  return witness != failures.end() ? *witness : failures.front();
}

bool is_interruption(const std::vector<RankFailure>& failures) {
  return std::all_of(failures.begin(), failures.end(), [](const RankFailure& failure) {
    if (is_witness(failure)) return !failure.sent.empty();
    return ended_as_told(failure) && exit_status(failure.status) != 128 + SIGKILL;
  });
}

std::string describe_failure(const RankFailure& failure) {
  if (!failure.problem.empty())
    return fmt::format("rank {} on {}: {}", failure.rank, failure.host, failure.problem);
  const bool killed = WIFSIGNALED(failure.status) && WTERMSIG(failure.status) == SIGKILL;
  const char* more = was_killed_by_us(failure) ? ", sent by horon run"
                     : killed                  ? "; was the host out of memory?"
                                               : "";
  return fmt::format("rank {} on {} {}{}", failure.rank, failure.host,
                     describe_status(failure.status), more);
}

}  // namespace horon::launch
