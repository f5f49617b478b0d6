#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/exit_code.h"

// The five exception types of all public calls. There are no error codes and no abort(). A message
// says what failed, on what, what was observed, and what to do.
//   try { comm.barrier(); }
//   catch (const horon::PeerLostError& lost) { continue_without(lost.ranks()); }
namespace horon {

// Base class, also for everything that is not one of the four below. Carries the exit code that a
// program should end with.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ExitCode code = ExitCode::kFailure)
      : std::runtime_error(what), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

// Wrong usage: fix the program, the flags or the files. Nothing was changed.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& what, ExitCode code = ExitCode::kUsage)
      : Error(what, code) {}
};

// One or more ranks are gone (killed, crashed, closed). `ranks` are numbers in the job.
class PeerLostError : public Error {
 public:
  PeerLostError(const std::string& what, std::vector<int> ranks)
      : Error(what, ExitCode::kPeer), ranks_(std::move(ranks)) {}
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

// A deadline passed. Names the ranks that were waited for, if any.
class TimeoutError : public Error {
 public:
  explicit TimeoutError(const std::string& what, std::vector<int> ranks = {})
      : Error(what, ExitCode::kPeer), ranks_(std::move(ranks)) {}
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

// A system call failed: files, sockets, memory.
class IoError : public Error {
 public:
  explicit IoError(const std::string& what, ExitCode code = ExitCode::kStorage)
      : Error(what, code) {}
};

// Throws UsageError(what) unless ok.
inline void require(bool ok, std::string_view what) {
  if (!ok) throw UsageError(std::string(what));
}

// An error with the message "<action>: <text of errno>", e.g. "open /x/y: Permission denied". Call
// it before errno changes.
IoError io_error(std::string_view action);

// "rank 3" or "ranks 3, 5", for messages.
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace horon
