#pragma once

#include <map>
#include <string>
#include <vector>

#include "horon/launch/host_list.h"

// The contract between the launcher and the programs it starts. Pure.
namespace horon::launch {

using Environment = std::map<std::string, std::string>;

// The variables that tell a process its place, under Horon's names and under Horovod's, and the
// threads it may use.
Environment rank_environment(const Place& place, const std::string& host, int cores);

// Whether a variable of the launcher's environment travels to other hosts: PATH, LD_LIBRARY_PATH,
// PYTHONPATH, OMP_NUM_THREADS, HORON_*, HOROVOD_*, and the names in `extra`. Those that tell a
// process its place never do.
bool travels(const std::string& name, const std::vector<std::string>& extra);

// "NAME=VALUE" pairs as execve takes them.
std::vector<std::string> flatten(const Environment& environment);
// Pairs of a process's environment; the last of a name counts.
Environment parse_environment(const std::vector<std::string>& pairs);
Environment process_environment();

// UsageError unless it is a name that an environment can hold.
void check_variable_name(const std::string& name);

}  // namespace horon::launch
