#pragma once

#include <string>
#include <vector>

#include "horon/base/time.h"

// ssh's command line and its errors. Pure.
namespace horon::launch {

// ssh options of `horon run`.
struct SshOptions {
  std::string program = "ssh";
  int port = 0;               // 0: ssh's own default
  std::string identity_file;  // empty: ssh's own
  std::string config_file;    // empty: ssh's own
  bool accept_new_keys = false;
  std::string remote_program;  // horon on the other host
  Milliseconds connect_timeout{30000};
};

// The command that starts an agent on `host`: never prompts, checks keys, host after "--", and one
// fixed remote command. UsageError for a remote path that a shell could misread.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host);

// The options that apply to ssh however it is started: -F, -p, -i, and the keys to accept.
std::vector<std::string> ssh_arguments(const SshOptions& options);

// A one-line explanation from ssh's exit status and last output.
std::string explain_ssh_failure(const SshOptions& options, int exit_status,
                                const std::string& words);

}  // namespace horon::launch
