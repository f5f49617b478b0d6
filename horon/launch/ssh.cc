#include "horon/launch/ssh.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon::launch {
namespace {

bool contains(const std::string& text, std::string_view piece) {
  return text.find(piece) != std::string::npos;
}

std::string last_line(const std::string& words) {
  const auto lines = split(words, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!line->empty()) return line->substr(0, 200);
  }
  return "";
}

}  // namespace

std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host) {
  const std::string& remote = options.remote_program;
  const bool plain = !remote.empty() && remote.front() != '-' &&
                     std::all_of(remote.begin(), remote.end(), [](unsigned char c) {
                       return (c < 0x80 && std::isalnum(c) != 0) || c == '/' || c == '.' ||
                              c == '_' || c == '-' || c == '+';
                     });
  require(plain,
          fmt::format("the path of horon on the other hosts, '{}', has characters other than "
                      "letters, digits and /._-+; give another with --remote-horon",
                      remote));
  const auto seconds = std::max<int64_t>(1, options.connect_timeout.count() / 1000);
  std::vector<std::string> command = {options.program};
  const auto option = [&](const std::string& text) { command.insert(command.end(), {"-o", text}); };
  option("BatchMode=yes");
  if (!options.accept_new_keys) option("StrictHostKeyChecking=yes");
  option(fmt::format("ConnectTimeout={}", seconds));
  option("ConnectionAttempts=1");
  option("ControlMaster=no");  // a shared connection would end with us, and others with it
  option("ControlPath=none");
  option("ServerAliveInterval=5");
  option("ServerAliveCountMax=3");
  option("ClearAllForwardings=yes");
  option("ForwardAgent=no");
  option("ForwardX11=no");
  option("RequestTTY=no");
  option("LogLevel=ERROR");
  for (const std::string& word : ssh_arguments(options)) command.push_back(word);
  command.insert(command.end(), {"--", host, fmt::format("exec {} agent", remote)});
  return command;
}

std::vector<std::string> ssh_arguments(const SshOptions& options) {
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (!options.config_file.empty()) add("-F", options.config_file);
  if (options.accept_new_keys) add("-o", "StrictHostKeyChecking=accept-new");
  if (options.port != 0) add("-p", std::to_string(options.port));
  if (!options.identity_file.empty()) add("-i", options.identity_file);
  return words;
}

std::string explain_ssh_failure(const SshOptions& options, int exit_status,
                                const std::string& words) {
  if (contains(words, "REMOTE HOST IDENTIFICATION HAS CHANGED"))
    return "its host key has changed; if that is right, remove the old one with ssh-keygen -R";
  if (contains(words, "host key is known") || contains(words, "Host key verification failed"))
    return "its host key is not known; connect once with ssh by hand, or give --ssh-accept-new";
  if (contains(words, "Permission denied"))
    return "ssh was denied: " + last_line(words) + "; keys must work without a password";
  if (contains(words, "Could not resolve hostname")) return "no host of that name";
  if (contains(words, "Connection refused")) return "connection refused; is sshd running there?";
  if (contains(words, "timed out") || contains(words, "Timed out"))
    return "timed out; is the host up and reachable?";
  if (contains(words, "No route to host") || contains(words, "Network is unreachable"))
    return "no route to it";
  if (exit_status == 127 || exit_status == 126 || contains(words, "not found") ||
      contains(words, "No such file"))
    return fmt::format("no horon there: '{}' cannot be run; give its path with --remote-horon",
                       options.remote_program);
  const std::string line = last_line(words);
  return fmt::format("ssh ended with status {}{}", exit_status,
                     line.empty() ? "" : " and said: " + line);
}

}  // namespace horon::launch
