#include "horon/cli/spelling.h"

#include <algorithm>

#include "horon/base/setting.h"

namespace horon::cli {

std::string spell_flag(const CLI::App& command, const std::string& flag) {
  if (command.get_option_no_throw(flag) != nullptr) return flag;
  const std::string name = setting_name(flag);
  std::string dashes = name;
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  for (const std::string& one : {"--" + dashes, "--" + name})
    if (command.get_option_no_throw(one) != nullptr) return one;
  return flag;
}

void spell_words(const CLI::App& app, std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const auto below =
        command->get_subcommands([&](const CLI::App* one) { return one->get_name() == words[i]; });
    if (!below.empty()) command = below.front();
    if (!words[i].starts_with("--")) continue;
    const size_t equals = std::min(words[i].find('='), words[i].size());
    words[i] = spell_flag(*command, words[i].substr(0, equals)) + words[i].substr(equals);
  }
}

}  // namespace horon::cli
