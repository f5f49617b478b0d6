#pragma once

#include <map>
#include <string>
#include <vector>

#include "horon/launch/host_list.h"

// The environment of the programs that the launcher starts. Pure.
namespace horon::launch {

// Variables by name.
using Environment = std::map<std::string, std::string>;

// The variables that tell a process its rank and sizes, under Horon's and Horovod's names, and its
// number of threads.
Environment rank_environment(const RankPlacement& placement, const std::string& host, int cores);

// Whether a variable of the launcher's environment is passed to other hosts: PATH, LD_LIBRARY_PATH,
// PYTHONPATH, OMP_NUM_THREADS, HORON_*, HOROVOD_*, and the names in `extra`. The variables of
// rank_environment() never are.
bool travels(const std::string& name, const std::vector<std::string>& extra);

// "NAME=VALUE" pairs for execve.
std::vector<std::string> flatten(const Environment& environment);
// Parses "NAME=VALUE" pairs; the last one of each name counts.
Environment parse_environment(const std::vector<std::string>& pairs);
Environment process_environment();

// UsageError unless it is a valid variable name.
void check_variable_name(const std::string& name);

}  // namespace horon::launch
