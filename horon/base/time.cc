#include "horon/base/time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
    {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}}};

}  // namespace

Clock::duration Deadline::left(Clock::duration cap) const {
  if (is_never()) return cap;
  const Clock::duration rest = at_ - Clock::now();
  if (rest < Clock::duration::zero()) return Clock::duration::zero();
  return rest < cap ? rest : cap;
}

Milliseconds parse_duration(std::string_view text) {
  const std::string_view trimmed = trim(text);
  const size_t unit_at = trimmed.find_first_not_of("0123456789.");
  const std::string_view unit = unit_at == std::string_view::npos ? "s" : trimmed.substr(unit_at);
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const auto number = parse_number(trimmed.substr(0, unit_at));
    if (!number) break;
    const double total = *number * factor;
    if (!(total >= 0) || total > 1e14) break;
    return Milliseconds(static_cast<int64_t>(std::llround(total)));
  }
  throw UsageError(fmt::format("'{}' is not a duration; write 250ms, 30s, 5m, 2h or 1d", text));
}

std::string format_duration(Milliseconds duration) {
  const int64_t count = duration.count();
  for (auto unit = kUnits.rbegin(); unit != kUnits.rend(); ++unit) {
    const auto factor = static_cast<int64_t>(unit->second);
    if (count != 0 && count % factor == 0) return fmt::format("{}{}", count / factor, unit->first);
  }
  return "0s";
}

std::string utc_now() {
  const auto now =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
}

}  // namespace horon
