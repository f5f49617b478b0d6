#pragma once

#include <string>
#include <vector>

#include "horon/base/time.h"

// What we say to ssh and what it says to us. Pure.
namespace horon::launch {

struct SshOptions {
  std::string program = "ssh";
  int port = 0;               // 0: ssh's own default
  std::string identity_file;  // empty: ssh's own
  std::string config_file;    // empty: ssh's own
  bool accept_new_keys = false;
  std::string remote_program;  // horon on the other host
  Milliseconds connect_timeout{30000};
};

// The command that starts an agent on `host`: never a prompt, keys checked, host after "--", and
// one fixed remote command. UsageError for a remote program whose path a shell could misread.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host);

// What of the options concerns ssh however it is started: -F, -p, -i, and the keys to accept.
std::vector<std::string> ssh_arguments(const SshOptions& options);

// One line for people from ssh's exit status and last words.
std::string explain_ssh_failure(const SshOptions& options, int exit_status,
                                const std::string& words);

}  // namespace horon::launch
