#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/setting.h"
#include "horon/base/time.h"

// The job's settings, as every program reads them. A value comes from the first of: command line,
// environment, file, variables that are set for Horovod, default. Nobody else calls getenv.
namespace horon {

std::vector<std::string> knob_words(std::string_view name);  // that are allowed
std::string knob_env(std::string_view name);                 // HORON_HEAP_BYTES
std::string knob_flag(std::string_view name);                // --heap-bytes

// The settings of one job, resolved and checked once. A value: ranks in one process may differ.
class Knobs {
 public:
  // Defaults only.
  Knobs();
  // `flags` holds name -> value as given on the command line. `file` is the path of a file with
  // "name = value" lines (setting.h); empty: HORON_CONFIG, or none. Throws UsageError for an
  // unknown name, one of the trainer's or a bad value, naming the flag, the variable, or file and
  // line.
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
  // Those that are not at their default because nobody said anything: for another process, which
  // resolves them as flags.
  std::map<std::string, std::string> given() const;

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
