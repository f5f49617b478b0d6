#pragma once

#include <string>
#include <vector>

// Decides how a job ended and which rank to blame. Pure.
namespace horon::launch {

// How one rank failed.
struct RankFailure {
  int rank = 0;
  std::string host;
  int status = 0;         // as returned by waitpid
  std::string problem;    // why it could not be started
  std::vector<int> sent;  // signals that the launcher sent it earlier
};

// It reported a lost peer (exit code 10): another rank may have failed.
bool is_witness(const RankFailure& failure);

// It reported wrong usage (exit code 2), as all ranks then do.
bool is_misuse(const RankFailure& failure);

// It ended from a signal that the launcher had sent, with the status that a shell reports for it,
// or with 75 (interrupted) after one.
bool ended_as_told(const RankFailure& failure);

// The rank to blame, of all failures reported until the job ended, in that order: the first that
// failed by itself, however late; else the first witness; else the first. Not empty.
const RankFailure& choose_culprit(const std::vector<RankFailure>& failures);

// After a signal to the launcher: no rank failed by itself and none had to be killed. Witnesses
// that reported after the signal lost ranks that it ended.
bool is_interruption(const std::vector<RankFailure>& failures);

// "rank 3 on b was killed by signal 9 (Killed); was the host out of memory?"
std::string describe_failure(const RankFailure& failure);

}  // namespace horon::launch
