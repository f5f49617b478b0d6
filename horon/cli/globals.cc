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

CLI::Option& add_flag_of(CLI::App& app, const Setting& setting, GivenFlags& flags) {
  const std::string name(setting.name);
  const bool is_switch = setting.type == SettingType::kBool;
  const auto keep = [&flags, name, is_switch](const CLI::results_t& values) {
    const std::string value = values.empty() ? "" : values.back();
    flags[name] = is_switch && value.empty() ? "true" : value;
    return true;
  };
  auto* option = app.add_option(setting_flag(setting), CLI::callback_t(keep), help_of(setting));
  option->type_name(is_switch ? "[BOOL]" : "TEXT");
  if (is_switch) option->expected(0, 1);
  return *option;
}

}  // namespace

Knobs Globals::knobs() const {
  require(config != "", "--config: the name of a file is missing: ''");
  return Knobs::resolve(flags, process_env, config.value_or(""));
}

void Globals::export_to_ranks() const {
  const Knobs settings = knobs();
  if (config) setenv("HORON_CONFIG", std::filesystem::absolute(*config).c_str(), 1);
  for (const auto& [name, value] : settings.given()) {
    if (settings.origin(name) == "command line") setenv(knob_env(name).c_str(), value.c_str(), 1);
  }
}

void add_knob_flags(CLI::App& app, Globals& globals) {
  app.add_option("--config", globals.config, "file with settings, one 'name = value' a line")
      ->group("Settings");
  for (const Setting& setting : setting_table()) {
    if (setting.scope != SettingScope::kJob) continue;
    // Looked at where it was given, so that the message names the flag.
    const auto wrong = [&setting](const std::string& value) {
      try {
        check_setting(setting, value, "");
      } catch (const UsageError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    add_flag_of(app, setting, globals.flags).group("Settings")->check(wrong, "");
  }
  const std::string elsewhere = "reduction";  // the settings say where it is
  app.add_option_function<std::string>(
         knob_flag(elsewhere),
         [&globals, elsewhere](const std::string& value) { globals.flags[elsewhere] = value; })
      ->group("");
}

void add_all_settings(CLI::App& app, GivenFlags& flags) {
  for (const bool of_job : {false, true}) {  // first what people look for here
    for (const Setting& setting : setting_table()) {
      if ((setting.scope == SettingScope::kJob) != of_job) continue;
      add_flag_of(app, setting, flags)
          .multi_option_policy(CLI::MultiOptionPolicy::TakeLast)  // of a flag that is given twice
          ->group(fmt::format("Settings of the {}", name_of(setting.scope)));
    }
  }
}

}  // namespace horon::cli
