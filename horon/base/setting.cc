#include "horon/base/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/time.h"

namespace horon {
namespace {

constexpr double kLargestWhole = 9007199254740992.0;  // 2^53: every one below it is exact

std::string lower(std::string_view text) {
  std::string word(trim(text));
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return word;
}

const Setting* find_own(std::string_view name) {
  for (const Setting& setting : setting_table())
    if (setting.name == name) return &setting;
  return nullptr;
}

bool matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

void check_word(const Setting& setting, const std::string& word) {
  const std::vector<std::string> words = split(setting.words, ' ');
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  for (const RefusedWord& refused : refused_words()) {
    require(refused.setting != setting.name || refused.word != word,
            fmt::format("'{}': {}", word, refused.why));
  }
  const std::string close = nearest(word, words);
  throw UsageError(fmt::format("'{}' is not one of {}{}", word, setting_allowed(setting),
                               close.empty() ? "" : fmt::format("; did you mean '{}'?", close)));
}

template <typename T>
void check_range(const Setting& setting, std::string_view value, T (*parse)(std::string_view)) {
  std::string wrong = fmt::format("'{}'", value);
  try {
    const T number = parse(value);
    if (parse(setting.low) <= number && (setting.high.empty() || number <= parse(setting.high)))
      return;
  } catch (const UsageError& error) {
    wrong = error.what();
  }
  throw UsageError(fmt::format("{}: allowed is {}", wrong, setting_allowed(setting)));
}

void check_address(const std::string& value) {
  for (const std::string& one : split(value, ',')) {
    const size_t colon = one.rfind(':');
    require(colon != one.npos && colon > 0, fmt::format("'{}' is not host:port", one));
    const auto port = parse_number(one.substr(colon + 1));
    require(port && *port >= 1 && *port <= 65535, fmt::format("'{}' has an invalid port", one));
  }
}

// The value as it is kept. UsageError.
std::string check_value(const Setting& setting, std::string_view value) {
  const std::string word = lower(value);
  for (const std::string& allowed_word : split(setting.words, ' ')) {
    if (word == allowed_word) return word;
  }
  switch (setting.type) {
    case SettingType::kText:
      return std::string(value);
    case SettingType::kAddress:
      check_address(std::string(value));
      return std::string(value);
    case SettingType::kWord:
      if (!word.empty() || !setting.fallback.empty()) check_word(setting, word);
      return word;
    case SettingType::kWords:
      for (const std::string& one : split(word, ',')) check_word(setting, one);
      return fmt::format("{}", fmt::join(split(word, ','), ","));
    case SettingType::kInteger:
      check_range(setting, value, parse_whole);
      return std::to_string(parse_whole(value));
    case SettingType::kNumber:
      check_range(setting, value, parse_finite);
      return std::string(trim(value));
    case SettingType::kBytes:
      check_range(setting, value, parse_bytes);
      return std::string(trim(value));
    case SettingType::kDuration:
      check_range(setting, value, parse_duration);
      return std::string(trim(value));
    case SettingType::kBool:
      return parse_switch(word) ? "true" : "false";
  }
  return "";
}

[[noreturn]] void refuse_unknown(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Setting& known : setting_table()) names.emplace_back(known.name);
  for (const SettingAlias& alias : alias_table())
    if (!alias.setting.empty()) names.emplace_back(alias.name);
  const std::string close = nearest(setting_name(name), names);
  throw UsageError(fmt::format(
      "{}: unknown setting '{}'{}", where, name,
      close.empty() ? "; see `horon info --knobs`" : fmt::format("; did you mean '{}'?", close)));
}

}  // namespace

std::string setting_name(std::string_view text) {
  std::string name = lower(text);
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const SettingAlias* look_up_alias(std::string_view name) {
  const std::string wanted = setting_name(name);
  for (const SettingAlias& alias : alias_table())
    if (matches(alias.name, wanted)) return &alias;
  return nullptr;
}

const Setting* look_up_setting(std::string_view name) {
  if (const Setting* own = find_own(setting_name(name))) return own;
  const SettingAlias* alias = look_up_alias(name);
  return alias == nullptr ? nullptr : find_own(alias->setting);
}

std::string convert_value(const SettingAlias& alias, std::string_view value) {
  const auto number = parse_number(trim(value));
  if (alias.unit == AliasUnit::kOurs || !number || !std::isfinite(*number))
    return std::string(value);
  if (alias.unit == AliasUnit::kMegabytes)
    return fmt::format("{:.0f}", std::floor(*number * 1048576));
  // Horovod's word for never.
  if (alias.setting == "stall_shutdown_time" && *number == 0) return "365d";
  return fmt::format("{}s", *number);
}

std::string setting_flag(const Setting& setting) {
  std::string flag = "--" + std::string(setting.name);
  // Trainer flags are spelled as in the programs that users know.
  if (setting.scope == SettingScope::kJob) std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string setting_allowed(const Setting& setting) {
  if (setting.type == SettingType::kBool) return "true or false";
  if (setting.type == SettingType::kAddress) return "host:port";
  const std::string words = fmt::format("{}", fmt::join(split(setting.words, ' '), ", "));
  if (setting.type == SettingType::kText)  // with words: learning_rate_strategy
    return words.empty() ? "" : words + ", or stages such as 5:0.4,10:0.04";
  if (setting.low.empty()) return words;
  const std::string range = setting.high.empty()
                                ? fmt::format("at least {}", setting.low)
                                : fmt::format("{} to {}", setting.low, setting.high);
  return range + (words.empty() ? "" : ", or " + words);
}

std::string check_setting(const Setting& setting, std::string_view value, std::string_view where) {
  try {
    return check_value(setting, value);
  } catch (const UsageError& error) {
    if (where.empty()) throw;
    throw UsageError(fmt::format("{}: {}", where, error.what()));
  }
}

ReadSetting read_setting(std::string_view name, std::string_view value, std::string_view where) {
  const Setting* setting = find_own(setting_name(name));
  if (setting != nullptr) return {*setting, check_setting(*setting, value, where)};
  const SettingAlias* alias = look_up_alias(name);
  if (alias == nullptr) refuse_unknown(name, where);
  require(!alias->setting.empty(), fmt::format("{}: {}", where, alias->meaning));
  setting = find_own(alias->setting);
  try {
    return {*setting, check_value(*setting, convert_value(*alias, value))};
  } catch (const UsageError&) {  // about the value as it was written
    throw UsageError(fmt::format("{}{}'{}': it is {} here: allowed is {}", where,
                                 where.empty() ? "" : ": ", value, setting->name,
                                 setting_allowed(*setting)));
  }
}

bool parse_switch(std::string_view text) {
  for (std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  throw UsageError(fmt::format("'{}' is neither true nor false", text));
}

int64_t parse_whole(std::string_view text) {
  const auto number = parse_number(trim(text));
  require(number && std::abs(*number) <= kLargestWhole && *number == std::floor(*number),
          fmt::format("'{}' is not a whole number", text));
  return static_cast<int64_t>(*number);
}

double parse_finite(std::string_view text) {
  const auto number = parse_number(trim(text));
  require(number && std::isfinite(*number), fmt::format("'{}' is not a number", text));
  return *number;
}

std::string_view name_of(SettingScope scope) {
  switch (scope) {
    case SettingScope::kJob:
      return "job";
    case SettingScope::kRun:
      return "run";
    case SettingScope::kModel:
      return "model";
    case SettingScope::kData:
      return "data";
    case SettingScope::kOutput:
      return "output";
  }
  return "";
}

std::vector<SettingLine> parse_setting_lines(std::string_view text, std::string_view path) {
  std::vector<SettingLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view body = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string where = fmt::format("{}:{}", path, number);
    if (body.empty() || body.front() == '#') continue;
    const size_t equals = body.find('=');
    require(equals != std::string_view::npos && equals > 0,
            fmt::format("{}: expected 'name = value', got '{}'", where, body));
    const std::string name(trim(body.substr(0, equals)));
    lines.push_back(
        {name, unquote(body.substr(equals + 1), where), fmt::format("{}: {}", where, name)});
  }
  return lines;
}

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

}  // namespace horon
