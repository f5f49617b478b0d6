#pragma once

#include <span>
#include <string>
#include <string_view>

// The only table of exit codes. `horon --help` prints it; docs/errors.md repeats it.
namespace horon {

// The exit codes of the program and of `horon::Error`. Values are stable.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kPeer = 10,
  kMismatch = 11,
  kData = 12,
  kCheckpoint = 13,
  kStorage = 14,
  kLaunch = 15,
  kAuth = 16,
  kNonFinite = 17,
  kConfig = 18,
  kInterrupted = 75,
};

struct ExitCodeEntry {
  ExitCode code;
  std::string_view meaning;
};

std::span<const ExitCodeEntry> exit_code_table();

// The table as text, one line per code.
std::string exit_code_help();

}  // namespace horon
