#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/setting.h"
#include "horon/base/time.h"

// The job's settings. A value comes from the first of: command line, environment, file, Horovod's
// variables, default. No other code calls getenv.
namespace horon {

std::vector<std::string> job_setting_words(std::string_view name);  // allowed words
std::string job_setting_variable(std::string_view name);            // HORON_HEAP_BYTES
std::string job_setting_flag(std::string_view name);                // --heap-bytes

// Checks the flags of a command line (name -> value; also names from other programs). UsageError
// names the flag; also if two names of one setting have different values.
std::vector<ReadSetting> read_flags(const std::map<std::string, std::string>& flags);

// The settings of one job, resolved and checked once. A value type: ranks in one process may have
// different ones.
//   const JobSettings job_settings = JobSettings::resolve({{"backend", "shm"}}, process_env, "");
//   const uint64_t bytes = job_settings.bytes("bucket_bytes");
class JobSettings {
 public:
  // Defaults only.
  JobSettings();
  // `flags` maps names to values as given on the command line. `file` is the path of a file with
  // "name = value" lines (setting.h); empty: HORON_CONFIG, or none. Throws UsageError for an
  // unknown name, a trainer setting or an invalid value; it names the flag, the variable, or file
  // and line.
  static JobSettings resolve(const std::map<std::string, std::string>& flags, const EnvLookup& env,
                             const std::string& file);

  // The value of a setting in the type of its row. The name must be that of a job setting
  // (UsageError).
  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  uint64_t bytes(std::string_view name) const;
  Milliseconds duration(std::string_view name) const;
  bool flag(std::string_view name) const;
  // "command line", "environment", "file", the name of Horovod's variable, or "default".
  std::string_view origin(std::string_view name) const;
  // Sets a value as if it came from `origin`. UsageError as resolve().
  void set(const std::string& name, const std::string& value, std::string_view origin);
  // The settings that were set explicitly, for passing to another process as flags.
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
