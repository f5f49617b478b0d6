#include "horon/base/exit_code.h"

#include <fmt/format.h>

#include <array>

namespace horon {

std::span<const ExitCodeEntry> exit_code_table() {
  static constexpr std::array<ExitCodeEntry, 13> kTable = {{
      {ExitCode::kOk, "success"},
      {ExitCode::kFailure, "any other failure"},
      {ExitCode::kUsage,
       "wrong usage: flags, names, sizes, a missing part, a file of hosts or settings"},
      {ExitCode::kPeer, "a peer was lost, or did not answer before the deadline"},
      {ExitCode::kMismatch,
       "ranks requested different operations, types or sizes, or have different settings or data"},
      {ExitCode::kData, "input data is corrupt"},
      {ExitCode::kCheckpoint, "a checkpoint could not be written or read"},
      {ExitCode::kStorage, "files or object storage failed"},
      {ExitCode::kLaunch, "a program, process or host could not be started, or a host was lost"},
      {ExitCode::kAuth, "a peer could not prove that it belongs to the job"},
      {ExitCode::kNonFinite, "NaN or infinity in gradients, or in the last evaluation"},
      {ExitCode::kConfig, "settings or data differ from those the run was started with"},
      {ExitCode::kInterrupted, "interrupted; the work can be resumed"},
  }};
  return kTable;
}

std::string exit_code_help() {
  std::string text = "Exit codes:\n";
  for (const ExitCodeEntry& entry : exit_code_table()) {
    text += fmt::format("  {:>3}  {}\n", static_cast<int>(entry.code), entry.meaning);
  }
  return text;
}

}  // namespace horon
