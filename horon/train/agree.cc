#include "horon/train/agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "horon/base/error.h"

namespace horon::train {
namespace {

constexpr const char* kNotGiven = "not given";
constexpr Milliseconds kFarewell{2000};  // so that others can read the reason

std::string to_text(const Terms& terms) {
  return nlohmann::json{{"given", terms.given}, {"platform", terms.platform}}.dump();
}

Terms from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {json.at("given").get<Given>(), json.at("platform").get<Given>()};
}

// On rank 0: what was decided for all.
nlohmann::json decide(const std::vector<Terms>& all, const TrainConfig& config) {
  if (const auto found = disagreements(all, config); !found.empty())
    return {{"error", fmt::format("the ranks were given different settings:\n  {}",
                                  fmt::join(found, "\n  "))}};
  std::vector<Given> platforms;
  for (const Terms& one : all) platforms.push_back(one.platform);
  nlohmann::json verdict = {{"config", to_json(config)}, {"warning", ""}};
  const auto found = horon::disagreements(platforms);
  if (found.empty()) return verdict;
  const std::string list = fmt::format("{}", fmt::join(found, "; "));
  if (config.reduction == Reduction::kExact)
    return {{"error", fmt::format("--reduction exact: the same bits need the same CPU kind and "
                                  "LibTorch on all ranks: {}",
                                  list)}};
  verdict["warning"] = fmt::format(
      "the ranks differ ({}): another run gets the same bits only if every rank runs on the same "
      "host again",
      list);
  return verdict;
}

std::vector<Terms> collect(Store& store, const std::string& prefix, int size, const Terms& mine,
                           Milliseconds timeout) {
  std::vector<Terms> all = {mine};
  const Deadline deadline = Deadline::after(timeout);
  for (int rank = 1; rank < size; ++rank) {
    try {
      all.push_back(from_text(store.get(fmt::format("{}/terms/{}", prefix, rank), deadline)));
    } catch (const TimeoutError&) {
      throw TimeoutError(fmt::format("rank {} did not send its settings within {}: does it run the "
                                     "same program?",
                                     rank, format_duration(timeout)),
                         {rank});
    }
  }
  return all;
}

// Whoever serves the store stays until all know why they end.
void wait_until_read(Store& store, const std::string& prefix, int size) {
  std::vector<std::string> keys;
  for (int rank = 1; rank < size; ++rank) keys.push_back(fmt::format("{}/read/{}", prefix, rank));
  try {
    store.wait(keys, Deadline::after(kFarewell));
  } catch (const Error&) {  // they notice that this rank has left
  }
}

}  // namespace

std::vector<std::string> disagreements(const std::vector<Terms>& all, const TrainConfig& config) {
  std::set<std::string> names;
  for (const Terms& one : all)
    for (const auto& [name, value] : one.given) names.insert(name);
  const TrainConfig defaults;
  std::vector<Given> compared(all.size());
  for (const std::string& name : names) {
    const Setting* setting = look_up_setting(name);
    if (setting != nullptr && setting->among_ranks == AmongRanks::kOwn) continue;
    const bool of_trainer = setting != nullptr && setting->scope != SettingScope::kJob;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto given = all[rank].given.find(name);
      compared[rank][name] = of_trainer && rank == 0          ? get_field(config, name)
                             : given != all[rank].given.end() ? given->second
                             : of_trainer                     ? get_field(defaults, name)
                                                              : kNotGiven;
    }
  }
  return horon::disagreements(compared);
}

AgreedTerms agree(Store& store, int rank, int size, const TrainConfig& config, const Terms& terms,
                  Milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  // Each rank counts its runs; run n is the same run on all ranks.
  const std::string prefix =
      fmt::format("train/{}", store.add(fmt::format("train/runs/{}", rank), 1, deadline));
  std::string verdict;
  if (rank == 0) {
    verdict = decide(collect(store, prefix, size, terms, timeout), config).dump();
    store.set(prefix + "/verdict", verdict, deadline);
  } else {
    store.set(fmt::format("{}/terms/{}", prefix, rank), to_text(terms), deadline);
    // Rank 0 may wait equally long for the other ranks.
    verdict = store.get(prefix + "/verdict", Deadline::after(2 * timeout));
    store.set(fmt::format("{}/read/{}", prefix, rank), "", deadline);
  }
  const auto decided = nlohmann::json::parse(verdict);
  if (decided.contains("error")) {
    if (rank == 0) wait_until_read(store, prefix, size);
    throw UsageError(decided["error"].get<std::string>(), ExitCode::kMismatch);
  }
  AgreedTerms agreement{config_from_json(decided.at("config")),
                        decided.at("warning").get<std::string>()};
  for (const auto& [name, value] : terms.given) {
    const Setting* setting = look_up_setting(name);
    if (setting == nullptr || setting->scope == SettingScope::kJob) continue;
    if (setting->among_ranks == AmongRanks::kOwn) set_field(agreement.config, name, value);
  }
  return agreement;
}

}  // namespace horon::train
