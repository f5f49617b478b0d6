#pragma once

#include <string>
#include <vector>

#include "horon/launch/job.h"

// Jobs that are started through the MPI that is installed, so that their programs may use MPI
// themselves and see the same world.
namespace horon::launch {

struct MpiStart {
  std::string program;             // this one: wraps each rank
  std::vector<std::string> extra;  // for mpirun
  bool binds = true;               // leave binding to us, not to `extra`
};

enum class MpiKind { kOpenMpi, kMpich };

// What `mpirun --version` says. Throws UsageError if there is no mpirun, or an unknown one.
MpiKind find_mpi();

// The one command for all hosts. UsageError if mpirun's ssh cannot be given what plan.ssh asks for.
std::vector<std::string> mpirun_command(const JobPlan& plan, const MpiStart& start, MpiKind kind);
// What that command finds in its environment besides ours.
Environment mpirun_environment(const JobPlan& plan, MpiKind kind);

// Fills in the host of a place of which mpirun told the rest, if ranks lie as they were asked for:
// ranks_of_hosts[0] of them on the first host, and so on. False, and nothing is filled in, if not.
// Pure.
bool find_host(Place& place, const std::vector<int>& ranks_of_hosts);

// A line of mpirun as rank, stream and text: "[1,3]<stderr>:text" (Open MPI, which also puts such a
// tag wherever it got a part of a line) or "[3] text" (MPICH, which does the same, so that long
// lines are torn: its tags cannot be told from text). Pure; empty for a line that no rank wrote.
// The line's end belongs to the last piece.
struct TaggedPiece {
  int rank = 0;
  bool is_error = false;
  std::string text;
};
std::vector<TaggedPiece> parse_tagged_line(const std::string& line, MpiKind kind);

// The line for a shell that starts the same: the variables that this job sets, and the command.
std::string describe_mpi(const JobPlan& plan, const MpiStart& start);
// The exit code of mpirun; 75 after one signal, whatever mpirun makes of it.
int run_mpi_job(const JobPlan& plan, const MpiStart& start);

// In a process that mpirun started: gives it the names of its place and becomes `command`.
int become_mpi_rank(const std::vector<std::string>& command,
                    const std::vector<int>& ranks_of_hosts);

}  // namespace horon::launch
