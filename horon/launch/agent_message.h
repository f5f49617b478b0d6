#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "horon/launch/host_list.h"

// The protocol between launcher and agent: frames over the agent's stdin and stdout.
namespace horon::launch {

// An agent's first bytes. Anything before them was printed by a login shell and is ignored.
constexpr std::string_view kAgentMagic = "\nHORON-AGENT-1\n";
// Largest frame: a whole environment and a command line.
constexpr size_t kAgentFrame = 8U << 20;

// To the agent.
struct StartRanks {
  std::string secret;  // hexadecimal
  std::string host;    // as named by the user
  std::string folder;  // working folder
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE, added to the agent's own
  bool bind = true;
  std::vector<RankPlacement> placements;
};
struct SignalRanks {
  int signal = 0;
};
struct EndRanks {};   // at once
struct StillHere {};  // keep-alive; an agent that receives nothing for long ends its ranks
using ToAgent = std::variant<StartRanks, SignalRanks, EndRanks, StillHere>;

// From the agent.
struct AgentHello {
  std::string version;
  std::string host_name;
  std::string ssh_connection;  // "client port server port", as sshd sets it
};
struct RankStarted {
  int rank = 0;
  int pid = 0;
};
struct RankOutput {
  int rank = 0;
  bool is_error = false;  // stderr
  std::string bytes;
};
struct RankEnded {
  int rank = 0;
  int status = 0;       // as returned by waitpid
  std::string problem;  // why it could not be started
};
using FromAgent = std::variant<AgentHello, RankStarted, RankOutput, RankEnded>;

std::string pack(const ToAgent& message);
std::string pack(const FromAgent& message);
// Throw Error (exit code 10) for bytes that pack() does not produce.
ToAgent unpack_to_agent(std::string_view bytes);
FromAgent unpack_from_agent(std::string_view bytes);

}  // namespace horon::launch
