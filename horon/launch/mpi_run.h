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

// Pure: the one command for all hosts.
std::vector<std::string> mpirun_command(const JobPlan& plan, const MpiStart& start, MpiKind kind);

// "[1,3]<stderr>:text" (Open MPI) or "[3] text" (MPICH) as rank, stream and text. Pure; false for a
// line that no rank wrote.
struct TaggedLine {
  int rank = 0;
  bool is_error = false;
  std::string text;
};
bool parse_tagged_line(const std::string& line, MpiKind kind, TaggedLine& tagged);

std::string describe_mpi(const JobPlan& plan, const MpiStart& start);
int run_mpi_job(const JobPlan& plan, const MpiStart& start);

// In a process that mpirun started: gives it the names of its place and becomes `command`.
int become_mpi_rank(const std::vector<std::string>& command);

}  // namespace horon::launch
