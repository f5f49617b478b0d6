#include "horon/cli/spelling.h"

#include <algorithm>

#include "horon/base/setting.h"

namespace horon::cli {

std::string spell_flag(const CLI::App& command, const std::string& flag) {
  if (command.get_option_no_throw(flag) != nullptr) return flag;
  const std::string name = setting_name(flag);
  std::string dashes = name;
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  std::vector<std::string> meant = {"--" + dashes, "--" + name};
  if (const Setting* setting = look_up_setting(name)) meant.push_back(setting_flag(*setting));
  for (const std::string& one : meant)
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
    const std::string typed = words[i].substr(0, equals);
    const std::string flag = spell_flag(*command, typed);
    if (flag == typed) continue;
    std::string value = words[i].substr(equals);
    const SettingAlias* alias = look_up_alias(typed);
    if (alias != nullptr && !value.empty()) value = "=" + convert_value(*alias, value.substr(1));
    if (alias != nullptr && value.empty() && i + 1 < words.size())
      words[i + 1] = convert_value(*alias, words[i + 1]);
    words[i] = flag + value;
  }
}

}  // namespace horon::cli
