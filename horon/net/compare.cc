#include "horon/net/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "horon/base/error.h"

namespace horon {
namespace {

constexpr const char* kNotGiven = "not given";
constexpr char kEnd = '\0';  // of names and values: neither has one inside

}  // namespace

std::vector<std::string> disagreements(const std::vector<Said>& all) {
  std::set<std::string> names;
  for (const Said& one : all)
    for (const auto& [name, value] : one) names.insert(name);
  std::vector<std::string> found;
  for (const std::string& name : names) {
    std::vector<std::pair<std::string, std::vector<int>>> sides;  // rank 0's first
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto entry = all[rank].find(name);
      const std::string value = entry == all[rank].end() ? kNotGiven : entry->second;
      auto side = std::find_if(sides.begin(), sides.end(),
                               [&](const auto& one) { return one.first == value; });
      if (side == sides.end()) side = sides.insert(sides.end(), {value, {}});
      side->second.push_back(static_cast<int>(rank));
    }
    if (sides.size() < 2) continue;
    std::vector<std::string> words;
    for (const auto& [value, ranks] : sides)
      words.push_back(fmt::format("{} on {}", value.empty() ? "''" : value, name_ranks(ranks)));
    found.push_back(fmt::format("{}: {}", name, fmt::join(words, ", ")));
  }
  return found;
}

Said common_settings(const JobSettings& job_settings) {
  Said said;
  for (const Setting& setting : setting_table()) {
    if (setting.scope != SettingScope::kJob || setting.among_ranks == AmongRanks::kOwn) continue;
    const std::string& text = job_settings.text(setting.name);
    said[std::string(setting.name)] =
        setting.among_ranks == AmongRanks::kAllOrNone ? (text.empty() ? "none" : "one")
        : setting.type == SettingType::kBytes
            ? fmt::format("{} bytes", job_settings.bytes(setting.name))
            : text;
  }
  return said;
}

std::string pack_said(const Said& said) {
  std::string text;
  for (const auto& [name, value] : said) text += name + kEnd + value + kEnd;
  return text;
}

Said unpack_said(const std::string& text) {
  Said said;
  for (size_t at = 0; at < text.size();) {
    const size_t middle = text.find(kEnd, at);
    const size_t end = middle == text.npos ? text.npos : text.find(kEnd, middle + 1);
    if (end == text.npos) throw Error("a rank sent settings that cannot be read");
    said[text.substr(at, middle - at)] = text.substr(middle + 1, end - middle - 1);
    at = end + 1;
  }
  return said;
}

}  // namespace horon
