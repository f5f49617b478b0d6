#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "horon/base/time.h"

// Every setting once. A value comes from the first of: command line, environment, file, default.
// Nobody else calls getenv. docs/knobs.md is generated from the table (`horon info --knobs-md`).
namespace horon {

enum class KnobType { kText, kInteger, kBytes, kDuration, kBool };

struct Knob {
  std::string_view name;  // "heap_bytes": --heap-bytes, HORON_HEAP_BYTES, heap_bytes = ...
  KnobType type;
  std::string_view fallback;
  std::string_view help;
};

std::span<const Knob> knob_table();
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
  // `flags` holds name -> value as given on the command line; `file` holds "name = value" lines
  // (# starts a comment) and may be empty. Throws UsageError for an unknown name or a bad value.
  static Knobs resolve(const std::map<std::string, std::string>& flags, const EnvLookup& env,
                       const std::string& file);

  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  uint64_t bytes(std::string_view name) const;
  Milliseconds duration(std::string_view name) const;
  bool flag(std::string_view name) const;
  // "command line", "environment", "file" or "default".
  std::string_view origin(std::string_view name) const;
  void set(const std::string& name, const std::string& value, std::string_view origin);

 private:
  struct Value {
    std::string text;
    std::string_view origin;
  };
  const Value& find(std::string_view name) const;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace horon
