#include "horon/base/job_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "horon/base/error.h"
#include "horon/base/horovod.h"
#include "horon/base/text.h"

namespace horon {
namespace {

bool is_of_job(const Setting& setting) { return setting.scope == SettingScope::kJob; }

// People look for it among the job's; to pass over it would be to let them believe it is heard.
constexpr std::string_view kOfTrainer = "reduction";

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path))
    throw UsageError(fmt::format("cannot read the settings file '{}'", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::vector<std::string> job_setting_words(std::string_view name) {
  const Setting* setting = look_up_setting(name);
  return setting == nullptr ? std::vector<std::string>() : split(setting->words, ' ');
}

std::string job_setting_variable(std::string_view name) {
  std::string env = "HORON_" + setting_name(name);
  std::transform(env.begin(), env.end(), env.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return env;
}

std::string job_setting_flag(std::string_view name) {
  const Setting* setting = look_up_setting(name);
  if (setting != nullptr && setting->name == name) return setting_flag(*setting);
  std::string flag = "--" + setting_name(name);  // as it was written, by whatever name
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::vector<ReadSetting> read_flags(const std::map<std::string, std::string>& flags) {
  std::vector<ReadSetting> all;
  std::map<std::string_view, std::pair<std::string, std::string>> said;  // flag and value
  for (const auto& [name, value] : flags) {
    const std::string flag = job_setting_flag(name);
    const ReadSetting read = read_setting(name, value, flag);
    const auto [before, fresh] = said.emplace(read.setting.name, std::pair{flag, read.value});
    require(fresh || before->second.second == read.value,
            fmt::format("{} and {}: both are {}; give one of the two", before->second.first, flag,
                        read.setting.name));
    all.push_back(read);
  }
  return all;
}

JobSettings::JobSettings() {
  for (const Setting& setting : setting_table()) {
    if (is_of_job(setting))
      values_[std::string(setting.name)] = {std::string(setting.fallback), "default"};
  }
}

JobSettings JobSettings::resolve(const std::map<std::string, std::string>& flags,
                                 const EnvLookup& env, const std::string& file) {
  JobSettings job_settings;
  for (const Setting& setting : setting_table()) {
    for (std::string_view rest = setting.horovod; !rest.empty();) {
      const std::string_view variable = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(variable.size() + 1, rest.size()));
      const auto value = read_horovod(setting, variable, env(std::string(variable)).value_or(""));
      if (!value) continue;
      job_settings.put(std::string(setting.name), *value, variable,
                       fmt::format("{} (environment)", variable));
      break;
    }
  }
  const std::string path = file.empty() ? env("HORON_CONFIG").value_or("") : file;
  if (!path.empty()) {
    for (const SettingLine& line : parse_setting_lines(read_text(path), path))
      job_settings.put(line.name, line.value, "file", line.where);
  }
  for (const Setting& setting : setting_table()) {
    if (!is_of_job(setting) && setting.name != kOfTrainer) continue;
    const std::string variable = job_setting_variable(setting.name);
    if (const auto value = env(variable))
      job_settings.put(std::string(setting.name), *value, "environment",
                       variable + " (environment)");
  }
  for (const auto& [name, value] : flags)
    job_settings.put(name, value, "command line", job_setting_flag(name));
  read_flags(flags);  // no two flags contradict each other
  return job_settings;
}

void JobSettings::set(const std::string& name, const std::string& value, std::string_view origin) {
  put(name, value, origin, fmt::format("setting '{}' ({})", name, origin));
}

std::map<std::string, std::string> JobSettings::given() const {
  std::map<std::string, std::string> found;
  for (const auto& [name, value] : values_)
    if (value.origin != "default") found[name] = value.text;
  return found;
}

void JobSettings::put(const std::string& name, const std::string& value, std::string_view origin,
                      const std::string& where) {
  if (const Setting* setting = look_up_setting(name); setting != nullptr && !is_of_job(*setting))
    throw UsageError(fmt::format(
        "{}: a setting of the trainer, not of the job; pass it to the trainer: `horon train {} "
        "{}`, or in the file of `horon train --config`",
        where, setting_flag(*setting), value));
  const ReadSetting read = read_setting(name, value, where);
  values_[std::string(read.setting.name)] = {read.value, origin};
}

const JobSettings::Value& JobSettings::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw UsageError(fmt::format("unknown setting '{}'", name));
  return found->second;
}

const std::string& JobSettings::text(std::string_view name) const { return find(name).text; }
int64_t JobSettings::integer(std::string_view name) const { return parse_whole(find(name).text); }
uint64_t JobSettings::bytes(std::string_view name) const { return parse_bytes(find(name).text); }
Milliseconds JobSettings::duration(std::string_view name) const {
  return parse_duration(find(name).text);
}
bool JobSettings::flag(std::string_view name) const { return parse_switch(find(name).text); }
std::string_view JobSettings::origin(std::string_view name) const { return find(name).origin; }

}  // namespace horon
