#pragma once

#include <string>
#include <vector>

#include "horon/launch/job.h"

// Jobs that are started through the installed MPI, so that their programs may use MPI themselves.
namespace horon::launch {

// How mpirun is called.
struct MpiStart {
  std::string program;             // this program, which wraps each rank
  std::vector<std::string> extra;  // for mpirun
  bool binds = true;               // we control binding, not `extra`
};

enum class MpiKind { kOpenMpi, kMpich };

// The MPI according to `mpirun --version`. Throws UsageError if mpirun is missing or unknown.
MpiKind find_mpi();

// The mpirun command for all hosts. UsageError if mpirun's ssh does not support an option of
// plan.ssh.
std::vector<std::string> mpirun_command(const JobPlan& plan, const MpiStart& start, MpiKind kind);
// Additional variables in that command's environment.
Environment mpirun_environment(const JobPlan& plan, MpiKind kind);

// Completes `placement` with the host if mpirun placed the ranks as requested: ranks_of_hosts[0] of
// them on the first host, and so on. Otherwise returns false and changes nothing. Pure.
bool find_host(RankPlacement& placement, const std::vector<int>& ranks_of_hosts);

// Splits a line of mpirun into rank, stream and text: "[1,3]<stderr>:text" (Open MPI, which also
// inserts such a tag wherever it received part of a line) or "[3] text" (MPICH, which does the
// same, so long lines are split: its tags cannot be told from text). Pure; empty for a line that no
// rank wrote. The end of line belongs to the last piece.
struct TaggedPiece {
  int rank = 0;
  bool is_error = false;
  std::string text;
};
std::vector<TaggedPiece> parse_tagged_line(const std::string& line, MpiKind kind);

// An equivalent shell command: the variables that this job sets, and the command.
std::string describe_mpi(const JobPlan& plan, const MpiStart& start);
// Runs the job. Returns mpirun's exit code; 75 after a single signal, whatever mpirun returns.
int run_mpi_job(const JobPlan& plan, const MpiStart& start);

// In a process started by mpirun: sets the variables of its rank and executes `command`.
int become_mpi_rank(const std::vector<std::string>& command,
                    const std::vector<int>& ranks_of_hosts);

}  // namespace horon::launch
