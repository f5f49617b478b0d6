#include "horon/base/log.h"

#include <fmt/ranges.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

class CallbackSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit CallbackSink(std::function<void(const std::string&)> take) : take_(std::move(take)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    take_(std::string(trim({line.data(), line.size()})));
  }
  void flush_() override {}
  std::function<void(const std::string&)> take_;
};

}  // namespace

LogLevel parse_log_level(std::string_view given) {
  std::string name(given);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  // As Horovod calls them.
  if (name == "trace") name = "debug";
  if (name == "warning") name = "warn";
  if (name == "fatal") name = "error";
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  throw UsageError(
      fmt::format("unknown log level '{}'; one of {}", given, fmt::join(kNames, ", ")));
}

Log::Log(LogLevel level, const std::string& label,
         std::function<void(const std::string& line)> take)
    : level_(level) {
  if (level == LogLevel::kOff) return;
  spdlog::sink_ptr sink;
  if (take) {
    sink = std::make_shared<CallbackSink>(std::move(take));
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  }
  sink->set_pattern(label.empty() ? "%H:%M:%S.%e %^%l%$ %v"
                                  : "%H:%M:%S.%e %^%l%$ [" + label + "] %v");
  logger_ = std::make_shared<spdlog::logger>("horon", sink);
  logger_->set_level(to_spdlog(level));
}

void Log::write(LogLevel level, std::string text) const {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) {
    text.replace(at, 1, " | ");
  }
  logger_->log(to_spdlog(level), text);
}

}  // namespace horon
