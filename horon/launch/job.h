#pragma once

#include <string>
#include <vector>

#include "horon/base/log.h"
#include "horon/launch/environment.h"
#include "horon/launch/host_list.h"
#include "horon/launch/output.h"
#include "horon/launch/ssh.h"

namespace horon::launch {

// The checked arguments of `horon run`.
struct JobPlan {
  std::vector<Host> hosts;  // hosts with ranks, in order
  std::vector<RankPlacement> placements;
  std::vector<std::string> command;
  std::string folder;                // working folder on every host
  Environment environment;           // for every rank, overrides its inherited environment
  std::vector<std::string> exports;  // additional variables to pass to other hosts
  SshOptions ssh;
  Milliseconds start_timeout{30000};
  Milliseconds grace{5000};        // for the other ranks after one has failed
  Milliseconds stop_grace{30000};  // for all ranks after a signal to the launcher
  std::string interface;           // for the store between hosts; empty: as ssh
  int port = 0;                    // of the store; 0: any
  bool bind = true;                // bind ranks to cores
  OutputOptions output;
  LogLevel log_level = LogLevel::kWarn;
};

// True if this host's ranks are started without ssh.
bool is_local_host(const std::string& name);

// What would be started where, as text; without values of variables.
std::string describe_plan(const JobPlan& plan);

// Starts, supervises and ends the job. Returns its exit code: 0, that of the rank to blame
// (verdict.h), 15 if a host could not be reached or was lost, 75 if it was interrupted and every
// rank ended successfully or from that signal. On return no process of the job is left on any
// reachable host. Takes over the calling process: its signals and children.
int run_job(const JobPlan& plan);

}  // namespace horon::launch
