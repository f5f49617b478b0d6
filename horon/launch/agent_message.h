#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "horon/launch/host_list.h"

// What the launcher and an agent say to each other, as frames over the agent's stdin and stdout.
namespace horon::launch {

// An agent's first bytes. What a login shell printed before them is noise.
constexpr std::string_view kAgentMagic = "\nHORON-AGENT-1\n";
// Largest frame: a whole environment and a command line.
constexpr size_t kAgentFrame = 8U << 20;

// To the agent.
struct StartRanks {
  std::string secret;  // hexadecimal
  std::string host;    // as the user called it
  std::string folder;  // to start in
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE, laid over the agent's own
  bool bind = true;
  std::vector<Place> places;
};
struct SignalRanks {
  int signal = 0;
};
struct EndRanks {};   // at once
struct StillHere {};  // the launcher is; an agent that hears nothing for long ends its ranks
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
  int status = 0;       // as waitpid gives it
  std::string problem;  // why it never ran
};
using FromAgent = std::variant<AgentHello, RankStarted, RankOutput, RankEnded>;

std::string pack(const ToAgent& message);
std::string pack(const FromAgent& message);
// Throw Error (exit code 10) for anything that pack() would not have made.
ToAgent unpack_to_agent(std::string_view bytes);
FromAgent unpack_from_agent(std::string_view bytes);

}  // namespace horon::launch
