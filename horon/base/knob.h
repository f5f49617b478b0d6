#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/time.h"

// Every setting once. A value comes from the first of: command line, environment, file, variables
// that are set for Horovod, default.
// Nobody else calls getenv. docs/knobs.md is generated from the table (`horon info --knobs-md`).
namespace horon {

// kWords: several, with commas between. kAddress: host:port, or empty.
enum class KnobType { kText, kAddress, kWord, kWords, kInteger, kBytes, kDuration, kBool };

struct Knob {
  std::string_view name;  // "heap_bytes": --heap-bytes, HORON_HEAP_BYTES, heap_bytes = ...
  KnobType type;
  std::string_view fallback;
  std::string_view help;
  std::string_view words = {};  // that are allowed (numbers: besides numbers), blanks between
  std::string_view low = {};    // range of numbers, sizes and durations, as people write them
  std::string_view high = {};
  // Horovod's variables of the same meaning, in its units (horovod.h); blanks between.
  std::string_view horovod = {};
};

std::span<const Knob> knob_table();
std::vector<std::string> knob_words(std::string_view name);  // that are allowed
std::string knob_allowed(const Knob& knob);  // for people: "1ms to 365d"; empty: anything
// The value as it is kept: words in lower case. UsageError that says what is allowed, and which
// word is nearest.
std::string check_knob(const Knob& knob, std::string_view value);
// What people look for among the settings and find elsewhere.
inline constexpr std::string_view kNoKnob = "reduction";
std::string knob_env(std::string_view name);   // HORON_HEAP_BYTES
std::string knob_flag(std::string_view name);  // --heap-bytes
std::string knob_docs();                       // docs/knobs.md

using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_env(const std::string& name);

// The settings of one run, resolved and checked once. A value: ranks in one process may differ.
class Knobs {
 public:
  // Defaults only.
  Knobs();
  // `flags` holds name -> value as given on the command line. `file` is the path of a file with
  // "name = value" lines (# starts a comment, quotes may stand around values); empty: HORON_CONFIG,
  // or none. Throws UsageError for an unknown name or a bad value, naming the flag, the variable,
  // or file and line.
  static Knobs resolve(const std::map<std::string, std::string>& flags, const EnvLookup& env,
                       const std::string& file);

  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  uint64_t bytes(std::string_view name) const;
  Milliseconds duration(std::string_view name) const;
  bool flag(std::string_view name) const;
  // "command line", "environment", "file", the name of Horovod's variable, or "default".
  std::string_view origin(std::string_view name) const;
  void set(const std::string& name, const std::string& value, std::string_view origin);

 private:
  void put(const std::string& name, const std::string& value, std::string_view origin,
           const std::string& where);
  struct Value {
    std::string text;
    std::string_view origin;
  };
  const Value& find(std::string_view name) const;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace horon
