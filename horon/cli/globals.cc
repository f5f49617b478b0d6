#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/cli/commands.h"

namespace horon::cli {

Knobs Globals::knobs() const {
  require(config != "", "--config: the name of a file is missing: ''");
  return Knobs::resolve(flags, process_env, config.value_or(""));
}

void Globals::export_to_ranks() const {
  knobs();
  if (config) setenv("HORON_CONFIG", std::filesystem::absolute(*config).c_str(), 1);
  for (const auto& [name, value] : flags) setenv(knob_env(name).c_str(), value.c_str(), 1);
}

void add_knob_flags(CLI::App& app, Globals& globals) {
  app.add_option("--config", globals.config, "file with settings, one 'name = value' a line")
      ->group("Settings");
  for (const Knob& knob : knob_table()) {
    const std::string name(knob.name);
    const std::string allowed = knob_allowed(knob);
    const bool is_switch = knob.type == KnobType::kBool;
    const auto keep = [&globals, name, is_switch](const CLI::results_t& values) {
      globals.flags[name] = is_switch && values.back().empty() ? "true" : values.back();
      return true;
    };
    // Looked at where it was given, so that the message names the flag.
    const auto wrong = [&knob](const std::string& value) {
      try {
        check_knob(knob, value);
      } catch (const UsageError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    auto* option =
        app.add_option(knob_flag(name), CLI::callback_t(keep),
                       fmt::format("{}{}", knob.help, allowed.empty() ? "" : " [" + allowed + "]"));
    option->type_name(is_switch ? "[BOOL]" : "TEXT")->group("Settings")->check(wrong, "");
    if (is_switch) option->expected(0, 1);
  }
  app.add_option_function<std::string>(
         knob_flag(kNoKnob),
         [&globals](const std::string& value) { globals.flags[std::string(kNoKnob)] = value; })
      ->group("");  // the settings say where it is
}

}  // namespace horon::cli
