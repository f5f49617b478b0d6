#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Every setting once: the job's, which every program reads (knob.h), and the trainer's. One table
// gives each its name, kind, range, default and help, what holds for it when a run goes on and
// between ranks, and what other programs call it. Rows are plain data. docs/knobs.md is generated
// from them (`horon info --knobs-md`). Pure, but for process_env().
namespace horon {

// kWords: several, with commas between. kAddress: host:port, or empty.
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

// What it is about. All but the job's are the trainer's.
enum class SettingScope { kJob, kRun, kModel, kData, kOutput };

// What a run that goes on may have other than it was begun with.
enum class OnResume {
  kMayChange,
  kMustBeEqual,
  kEqualIfKnown,  // equal, unless the run of before left it open: at its default
  kEqualForBits,  // equal if both are of exact reduction: the bits depend on it
  kForgotten,     // of one start alone: the next one begins with the default
};

// Whether ranks that differ are an error. kAllOrNone: they may differ, but all have one (not
// empty), or none has.
enum class AmongRanks { kSame, kAllOrNone, kOwn };

struct Setting {
  std::string_view name;  // "heap_bytes": --heap-bytes, HORON_HEAP_BYTES, heap_bytes = ...
  SettingScope scope;
  SettingType type;
  std::string_view fallback;
  std::string_view help;
  std::string_view words = {};  // that are allowed (texts, numbers: besides others), blanks between
  std::string_view low = {};    // range of numbers, sizes and durations, as people write them
  std::string_view high = {};   // empty: no end
  OnResume on_resume = OnResume::kMayChange;
  AmongRanks among_ranks = AmongRanks::kOwn;
  // Horovod's variables of the same meaning, in its units (horovod.h); blanks between.
  std::string_view horovod = {};
};

// In which unit another program's value is.
enum class AliasUnit { kOurs, kSeconds, kMegabytes };

// The name of a setting, or of one that is not here, in another program.
struct SettingAlias {
  std::string_view name;  // a * at its end stands for any ending
  std::string_view program;
  std::string_view setting;  // of ours; empty: none, and a UsageError says what `meaning` says
  std::string_view meaning;  // where it differs, or what to use instead
  AliasUnit unit = AliasUnit::kOurs;
};

// A word of another program that a setting does not take.
struct RefusedWord {
  std::string_view setting;
  std::string_view word;
  std::string_view why;
};

std::span<const Setting> setting_table();
std::span<const SettingAlias> alias_table();
std::span<const RefusedWord> refused_words();

// A name as the table has it: --Batch-Size is batch_size.
std::string setting_name(std::string_view text);
// By its own name or another program's, in any spelling; null if there is none.
const Setting* look_up_setting(std::string_view name);
const SettingAlias* look_up_alias(std::string_view name);
// Another program's value in our units; one that is no number stays as it is.
std::string convert_value(const SettingAlias& alias, std::string_view value);

std::string setting_flag(const Setting& setting);     // --heap-bytes, --batch_size
std::string setting_allowed(const Setting& setting);  // "1ms to 365d"; empty: anything
// The value as it is kept: words in lower case. UsageError beginning with `where` (if not empty)
// that says what is allowed, and which word is nearest.
std::string check_setting(const Setting& setting, std::string_view value, std::string_view where);

// What somebody said, by whatever name: the setting and its value, as it is kept. UsageError
// beginning with `where`; it says what to use instead of a name that has no meaning here, and which
// one of the whole table is nearest to an unknown one.
struct ReadSetting {
  const Setting& setting;
  std::string value;
};
ReadSetting read_setting(std::string_view name, std::string_view value, std::string_view where);

bool parse_switch(std::string_view text);      // UsageError: neither true nor false
int64_t parse_whole(std::string_view text);    // "1e3" is one; UsageError
double parse_finite(std::string_view text);    // UsageError
std::string_view name_of(SettingScope scope);  // "job"

// A file of settings: "name = value" lines; # starts a comment, quotes may stand around values.
// Names and values are not looked at yet. UsageError with file and line.
struct SettingLine {
  std::string name;
  std::string value;
  std::string where;  // "file:3: name"
};
std::vector<SettingLine> parse_setting_lines(std::string_view text, std::string_view path);

std::string setting_docs();  // docs/knobs.md
// All that the table says of a name, also of another program's, for people. UsageError as above.
std::string explain_setting(std::string_view name);

using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_env(const std::string& name);

}  // namespace horon
