#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The table of all settings: the job's, which every program reads (job_settings.h), and the
// trainer's. Each row has a name, type, range, default and help, the rules for resumed runs and
// between ranks, and its names in other programs. Rows are plain data. docs/knobs.md is generated
// from them (`horon info --knobs-md`). Pure, except process_env().
namespace horon {

// kWords: several words separated by commas. kAddress: host:port, or empty.
enum class SettingType {
  kText,
  kAddress,
  kWord,
  kWords,
  kInteger,
  kNumber,
  kBytes,
  kDuration,
  kBool
};

// What the setting belongs to. All except kJob are the trainer's.
enum class SettingScope { kJob, kRun, kModel, kData, kOutput };

// What a resumed run may change.
enum class OnResume {
  kMayChange,
  kMustBeEqual,
  kEqualIfKnown,  // equal, unless it was unset in the earlier run
  kEqualForBits,  // equal if both use exact reduction: the bits depend on it
  kForgotten,     // applies to one start only; the next one begins with the default
};

// Whether different values on different ranks are an error. kAllOrNone: values may differ, but
// either all ranks have one (not empty), or none has.
enum class AmongRanks { kSame, kAllOrNone, kOwn };

// One setting: a row of the table.
struct Setting {
  std::string_view name;  // "heap_bytes": --heap-bytes, HORON_HEAP_BYTES, heap_bytes = ...
  SettingScope scope;
  SettingType type;
  std::string_view fallback;
  std::string_view help;
  std::string_view words =
      {};  // allowed words, separated by blanks (texts, numbers: in addition to others)
  std::string_view low = {};   // range of numbers, sizes and durations, as text
  std::string_view high = {};  // empty: no limit
  OnResume on_resume = OnResume::kMayChange;
  AmongRanks among_ranks = AmongRanks::kOwn;
  // Horovod's variables with the same meaning, in its units (horovod.h), separated by blanks.
  std::string_view horovod = {};
};

// The unit of another program's value.
enum class AliasUnit { kOurs, kSeconds, kMegabytes };

// A name used by another program, for one of our settings or for one that does not exist here.
struct SettingAlias {
  std::string_view name;  // a trailing * matches any ending
  std::string_view program;
  std::string_view setting;  // our setting; empty: none, and `meaning` is the UsageError's text
  std::string_view meaning;  // differences, or what to use instead
  AliasUnit unit = AliasUnit::kOurs;
};

// A value from another program that a setting does not accept.
struct RefusedWord {
  std::string_view setting;
  std::string_view word;
  std::string_view why;
};

std::span<const Setting> setting_table();
std::span<const SettingAlias> alias_table();
std::span<const RefusedWord> refused_words();

// The name as spelled in the table: --Batch-Size becomes batch_size.
std::string setting_name(std::string_view text);
// Finds a setting by its name or another program's name, in any spelling; null if there is none.
const Setting* look_up_setting(std::string_view name);
const SettingAlias* look_up_alias(std::string_view name);
// Another program's value in our units; not changed if it is not a number.
std::string convert_value(const SettingAlias& alias, std::string_view value);

std::string setting_flag(const Setting& setting);     // --heap-bytes, --batch_size
std::string setting_allowed(const Setting& setting);  // "1ms to 365d"; empty: anything
// Checks and normalises a value: words in lower case. UsageError beginning with `where` (if not
// empty) that lists what is allowed and the nearest word.
std::string check_setting(const Setting& setting, std::string_view value, std::string_view where);

// Resolves a name (also another program's) and checks the value. UsageError beginning with `where`;
// it says what to use instead of a name without meaning here, and which name of the whole table is
// nearest to an unknown one.
struct ReadSetting {
  const Setting& setting;
  std::string value;
};
ReadSetting read_setting(std::string_view name, std::string_view value, std::string_view where);

bool parse_switch(std::string_view text);      // UsageError if neither true nor false
int64_t parse_whole(std::string_view text);    // accepts "1e3"; UsageError
double parse_finite(std::string_view text);    // UsageError
std::string_view name_of(SettingScope scope);  // "job"

// Splits a settings file: "name = value" lines, # starts a comment, values may be quoted. Does not
// check names and values. UsageError with file and line.
struct SettingLine {
  std::string name;
  std::string value;
  std::string where;  // "file:3: name"
};
std::vector<SettingLine> parse_setting_lines(std::string_view text, std::string_view path);

std::string setting_docs();  // the text of docs/knobs.md
// Everything in the table about a name (also another program's), as text. UsageError as above.
std::string explain_setting(std::string_view name);

// Reads one environment variable; tests pass their own.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_env(const std::string& name);

}  // namespace horon
