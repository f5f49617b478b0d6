#pragma once

#include <string>

namespace horon::launch {

struct AgentOptions {
  int in = 0;  // of frames from and to the launcher
  int out = 1;
  int guardian = 0;            // process to watch; 0: none
  bool expects_pings = false;  // a launcher that says nothing for long is gone
  std::string folder;          // private; for the secret; removed at the end
};

// Starts and ends the ranks of one host for a launcher that speaks agent_message.h. Returns when
// the launcher has closed its end and every rank is gone: also when the launcher or the guardian
// died. No process that a rank started outlives it. Takes over the calling process: its session,
// signals and children.
int run_agent(const AgentOptions& options);

// `horon agent`: a guardian that runs the agent as its child, so that neither leaves processes
// behind when it is killed.
int run_guarded_agent();

}  // namespace horon::launch
