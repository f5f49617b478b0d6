#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

// One line per event on stderr, with the time and who speaks: "06:31:02.123 warn [rank 3/8] ...".
// A value: each rank holds its own, so ranks in one process keep their labels apart.
namespace spdlog {
class logger;
}

namespace horon {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Also TRACE, WARNING and FATAL, as Horovod calls them. Throws UsageError for an unknown name.
LogLevel parse_log_level(std::string_view name);

class Log {
 public:
  // `label` names the speaker, e.g. "rank 3/8"; empty for none. `sink` takes the lines instead of
  // stderr.
  explicit Log(LogLevel level = LogLevel::kWarn, const std::string& label = "",
               std::function<void(const std::string& line)> sink = nullptr);

  template <typename... Args>
  void debug(fmt::format_string<Args...> text, Args&&... args) const {
    if (level_ <= LogLevel::kDebug)
      write(LogLevel::kDebug, fmt::format(text, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) const {
    if (level_ <= LogLevel::kInfo)
      write(LogLevel::kInfo, fmt::format(text, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> text, Args&&... args) const {
    if (level_ <= LogLevel::kWarn)
      write(LogLevel::kWarn, fmt::format(text, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> text, Args&&... args) const {
    if (level_ <= LogLevel::kError)
      write(LogLevel::kError, fmt::format(text, std::forward<Args>(args)...));
  }

  LogLevel level() const { return level_; }

 private:
  // Line breaks inside `text` become " | ": one event, one line.
  void write(LogLevel level, std::string text) const;
  LogLevel level_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace horon
