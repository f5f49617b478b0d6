#include "horon/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "horon/base/error.h"

namespace horon {
namespace {

constexpr std::string_view kSteps = "KMGTP";

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t swap = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, swap});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  if (trim(text).empty()) return pieces;
  while (true) {
    const size_t at = text.find(separator);
    pieces.emplace_back(trim(text.substr(0, at)));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int64_t parse_integer(std::string_view text, std::string_view what, int64_t low, int64_t high) {
  const std::string_view trimmed = trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
  const bool whole = error == std::errc() && end == trimmed.data() + trimmed.size();
  if (!whole || value < low || value > high) {
    throw UsageError(
        fmt::format("{}: '{}' is not a whole number from {} to {}", what, text, low, high));
  }
  return value;
}

uint64_t parse_bytes(std::string_view text) {
  std::string_view unit = trim(text);
  const size_t unit_at = unit.find_first_not_of("0123456789.");
  const auto number = parse_number(unit.substr(0, unit_at));
  unit = unit_at == std::string_view::npos ? std::string_view() : trim(unit.substr(unit_at));
  double factor = 1;
  bool known = unit.empty() || unit == "B";
  const size_t step = unit.empty() ? std::string_view::npos : kSteps.find(unit.front());
  if (step != std::string_view::npos) {
    factor = std::pow(1024.0, static_cast<double>(step + 1));
    const std::string_view tail = unit.substr(1);
    known = tail.empty() || tail == "B" || tail == "iB";
  }
  if (!number || !known || *number < 0 || *number * factor > 9e18) {
    throw UsageError(fmt::format("'{}' is not a size; write 4096, 64KB, 100MB or 2GB", text));
  }
  return static_cast<uint64_t>(*number * factor);
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  size_t step = 0;
  for (value /= 1024; value >= 1024 && step + 1 < kSteps.size(); value /= 1024) ++step;
  return fmt::format("{:.{}f} {}B", value, value == std::floor(value) ? 0 : 1, kSteps[step]);
}

std::string unquote(std::string_view text, const std::string& where) {
  text = trim(text);
  if (!text.starts_with('"') && !text.starts_with('\''))
    return std::string(trim(text.substr(0, text.find('#'))));
  const size_t close = text.find(text.front(), 1);
  const std::string_view rest = close == text.npos ? "?" : trim(text.substr(close + 1));
  require(rest.empty() || rest.front() == '#',
          fmt::format("{}: a quote is missing, or too many: {}", where, text));
  return std::string(text.substr(1, close - 1));
}

std::string quote_for_shell(std::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) ||
           std::string_view("/._-+,:=@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) seed = (seed ^ at[i]) * 0x100000001b3ULL;
  return seed;
}

}  // namespace horon
