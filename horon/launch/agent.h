#pragma once

#include <string>

namespace horon::launch {

// An agent's connection to its launcher.
struct AgentOptions {
  int in = 0;  // descriptors for frames from and to the launcher
  int out = 1;
  int guardian = 0;            // process to watch; 0: none
  bool expects_pings = false;  // a launcher that is silent for long is considered gone
  std::string folder;          // private; for the secret; removed at the end
};

// Starts and ends the ranks of one host for a launcher, using the protocol of agent_message.h.
// Returns when the launcher has closed its end and every rank has ended, also if the launcher or
// the guardian died. No process that a rank started survives. Takes over the calling process: its
// session, signals and children.
int run_agent(const AgentOptions& options);

// `horon agent`: runs the agent as a child under a guardian, so that neither leaves processes
// behind if it is killed.
int run_guarded_agent();

}  // namespace horon::launch
