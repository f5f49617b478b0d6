#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/cli/commands.h"

namespace horon::cli {
namespace {

// What it does, its default, what is allowed, and what other programs call it.
std::string help_of(const Setting& setting) {
  std::string text(setting.help);
  const std::string allowed = setting_allowed(setting);
  if (!setting.fallback.empty()) text += fmt::format(" [{}]", setting.fallback);
  if (!allowed.empty()) text += fmt::format(" [{}]", allowed);
  for (const SettingAlias& alias : alias_table()) {
    if (alias.setting == setting.name)
      text += fmt::format(" (--{} of {}{}{})", alias.name, alias.program,
                          alias.meaning.empty() ? "" : ": ", alias.meaning);
  }
  return text;
}

// When a value is checked: while the command line is parsed, or by the code that reads it.
enum class Check { kNow, kLater };

// CLI11's own checks leave out the name of a hidden flag in their messages.
void check_now(const std::string& name, const std::string& value) {
  try {
    read_setting(name, value, "");
  } catch (const UsageError& error) {
    throw CLI::ValidationError(job_setting_flag(name), error.what());
  }
}

// A flag by the setting's own name or by another program's name for it: values are kept under the
// name that was typed, so that later messages can name it, too.
CLI::Option& add_flag_of(CLI::App& app, const Setting& setting, const std::string& name,
                         const std::string& help, Check check, GivenFlags& flags) {
  const bool is_switch = setting.type == SettingType::kBool;
  const auto keep = [&flags, name, is_switch, check](const CLI::results_t& values) {
    const std::string value = values.empty() ? "" : values.back();
    flags[name] = is_switch && value.empty() ? "true" : value;
    if (check == Check::kNow) check_now(name, flags[name]);
    return true;
  };
  auto* option = app.add_option(job_setting_flag(name), CLI::callback_t(keep), help);
  option->type_name(is_switch ? "[BOOL]" : "TEXT");
  if (is_switch) option->expected(0, 1);
  return *option;
}

// The flag of the setting, and those of other programs that mean it, which the help of the first
// names; commands may have some of these of their own.
std::vector<CLI::Option*> add_flags_of(CLI::App& app, const Setting& setting, Check check,
                                       GivenFlags& flags) {
  std::vector<CLI::Option*> options = {
      &add_flag_of(app, setting, std::string(setting.name), help_of(setting), check, flags)};
  for (const SettingAlias& alias : alias_table()) {
    const std::string name(alias.name);
    if (alias.setting != setting.name || app.get_option_no_throw(job_setting_flag(name)) != nullptr)
      continue;
    CLI::Option& option = add_flag_of(app, setting, name, "", check, flags);
    option.group("");
    options.push_back(&option);
  }
  return options;
}

}  // namespace

JobSettings Globals::job_settings() const {
  require(config != "", "--config: the name of a file is missing: ''");
  return JobSettings::resolve(flags, process_env, config.value_or(""));
}

void Globals::export_to_ranks() const {
  const JobSettings settings = job_settings();
  if (config) setenv("HORON_CONFIG", std::filesystem::absolute(*config).c_str(), 1);
  for (const auto& [name, value] : settings.given()) {
    if (settings.origin(name) == "command line")
      setenv(job_setting_variable(name).c_str(), value.c_str(), 1);
  }
}

void add_job_setting_flags(CLI::App& app, Globals& globals) {
  app.add_option("--config", globals.config, "settings file with one 'name = value' per line")
      ->group("Settings");
  for (const Setting& setting : setting_table()) {
    if (setting.scope != SettingScope::kJob) continue;
    for (CLI::Option* option : add_flags_of(app, setting, Check::kNow, globals.flags))
      if (!option->get_group().empty()) option->group("Settings");
  }
  const std::string elsewhere = "reduction";  // the settings say where it is
  app.add_option_function<std::string>(
         job_setting_flag(elsewhere),
         [&globals, elsewhere](const std::string& value) { globals.flags[elsewhere] = value; })
      ->group("");
}

void add_all_settings(CLI::App& app, GivenFlags& flags) {
  for (const bool of_job : {false, true}) {  // first what people look for here
    for (const Setting& setting : setting_table()) {
      if ((setting.scope == SettingScope::kJob) != of_job) continue;
      for (CLI::Option* option : add_flags_of(app, setting, Check::kLater, flags)) {
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // if it is given twice
        if (option->get_group() != "")
          option->group(fmt::format("Settings of the {}", name_of(setting.scope)));
      }
    }
  }
}

}  // namespace horon::cli
