#pragma once

#include <string>
#include <vector>

#include "horon/base/log.h"
#include "horon/launch/environment.h"
#include "horon/launch/host_list.h"
#include "horon/launch/output.h"
#include "horon/launch/ssh.h"

namespace horon::launch {

// Everything that `horon run` was asked for, checked.
struct JobPlan {
  std::vector<Host> hosts;  // those that run ranks, in order
  std::vector<Place> places;
  std::vector<std::string> command;
  std::string folder;                // working folder on every host
  Environment environment;           // for every rank, over what it would have anyway
  std::vector<std::string> exports;  // variables of ours that travel besides the usual ones
  SshOptions ssh;
  Milliseconds start_timeout{30000};
  Milliseconds grace{5000};        // for the others, once one rank failed and they were told
  Milliseconds stop_grace{30000};  // for all after a signal to us
  std::string interface;           // for the store between hosts; empty: what ssh used
  int port = 0;                    // of the store; 0: any
  bool bind = true;                // ranks to cores
  OutputOptions output;
  LogLevel log_level = LogLevel::kWarn;
};

// True if ranks of that host are started without ssh.
bool is_local_host(const std::string& name);

// What would be started where, for people. No values of variables.
std::string describe_plan(const JobPlan& plan);

// Starts, watches and ends the job. Returns its exit code: 0, that of the rank to blame
// (verdict.h), 15 if a host could not be reached or was lost, 75 if it was interrupted and every
// rank ended well or of that signal. When it returns no process of the job is left on any host that
// can be reached. Takes over the calling process: its signals and children.
int run_job(const JobPlan& plan);

}  // namespace horon::launch
