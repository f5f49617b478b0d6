#pragma once

#include <string>
#include <vector>

// How a job ends, decided. Pure.
namespace horon::launch {

struct RankFailure {
  int rank = 0;
  std::string host;
  int status = 0;         // as waitpid gives it
  std::string problem;    // why it never ran
  std::vector<int> sent;  // signals that the launcher had sent it before it was heard of
};

// It complains of a lost peer (exit code 10): somebody else may have failed.
bool is_witness(const RankFailure& failure);

// It complains of how it was called (exit code 2), as all ranks then do.
bool is_misuse(const RankFailure& failure);

// It ended of a signal that the launcher had sent, with the status that a shell shows for it, or
// with 75 (interrupted) after one.
bool ended_as_told(const RankFailure& failure);

// Whom to blame, of all that were heard until the job was over, in that order: the first that
// failed by itself, however late it came; else the first witness; else the first. Not empty.
const RankFailure& choose_culprit(const std::vector<RankFailure>& failures);

// After a signal to the launcher: nobody failed by itself, nobody had to be killed. Witnesses that
// were heard after the signal lost those who ended of it.
bool is_interruption(const std::vector<RankFailure>& failures);

// "rank 3 on b was killed by signal 9 (Killed); was the host out of memory?"
std::string describe_failure(const RankFailure& failure);

}  // namespace horon::launch
