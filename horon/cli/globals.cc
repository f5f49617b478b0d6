#include <cstdlib>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/cli/commands.h"

namespace horon::cli {

Knobs Globals::knobs() const {
  const std::string file = config.empty() ? process_env("HORON_CONFIG").value_or("") : config;
  return Knobs::resolve(flags, process_env, file);
}

void Globals::export_to_ranks() const {
  if (!config.empty()) setenv("HORON_CONFIG", std::filesystem::absolute(config).c_str(), 1);
  for (const auto& [name, value] : flags) setenv(knob_env(name).c_str(), value.c_str(), 1);
}

void add_knob_flags(CLI::App& app, Globals& globals) {
  app.add_option("--config", globals.config, "file with settings, one 'name = value' a line")
      ->group("Settings");
  for (const Knob& knob : knob_table()) {
    const std::string name(knob.name);
    app.add_option_function<std::string>(
           knob_flag(name),
           [&globals, name](const std::string& value) { globals.flags[name] = value; },
           std::string(knob.help))
        ->group("Settings");
  }
}

}  // namespace horon::cli
