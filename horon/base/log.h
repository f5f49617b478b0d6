#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

// One line per event on stderr, with time and label: "06:31:02.123 warn [rank 3/8] ...". A value
// type: each rank has its own, so ranks in one process keep their labels apart. Thread-safe.
namespace spdlog {
class logger;
}

namespace horon {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Accepts also Horovod's TRACE, WARNING and FATAL. Throws UsageError for an unknown name.
LogLevel parse_log_level(std::string_view name);

// Writes events of at least `level`. Copies share the output.
//   const Log log(parse_log_level("info"), "rank 3/8");
//   log.warn("{} does not answer", name_ranks({2}));
class Log {
 public:
  // `label` names the writer, e.g. "rank 3/8"; empty for none. `sink` receives the lines instead of
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
  // Replaces line breaks inside `text` by " | ": one event, one line.
  void write(LogLevel level, std::string text) const;
  LogLevel level_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace horon
