#include "horon/comm/start/meet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/net/compare.h"

namespace horon {
namespace {

// What every rank brings: its location, and the settings that must be alike.
std::vector<std::string> exchange_cards(int rank, int size, Milliseconds timeout, Store& store,
                                        const std::string& mine) {
  const Deadline deadline = Deadline::after(timeout);
  const auto key = [](int of) { return fmt::format("card/{}", of); };
  store.set(key(rank), mine, deadline);
  std::vector<std::string> keys;
  for (int peer = 0; peer < size; ++peer) keys.push_back(key(peer));
  try {
    return store.get_all(keys, deadline);
  } catch (const TimeoutError&) {  // who is missing is asked below
  }
  std::vector<int> missing;
  for (int peer = 0; peer < size; ++peer) {
    try {
      store.get(key(peer), Deadline::after(Milliseconds(0)));
    } catch (const TimeoutError&) {
      missing.push_back(peer);
    }
  }
  throw TimeoutError(
      fmt::format("start: {} did not come within {}; check that they were started, or raise "
                  "HORON_START_TIMEOUT",
                  name_ranks(missing), format_duration(timeout)),
      missing);
}

}  // namespace

// Hosts without such a GPU tell their name alone.
std::string RankLocation::encode() const {
  return gpus == 0 ? host : fmt::format("{}\n{}", host, gpus);
}

RankLocation RankLocation::decode(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return {text, 0};
  const int64_t gpus = parse_integer(text.substr(end + 1), "GPUs of a host", 0, 1 << 20);
  return {text.substr(0, end), static_cast<int>(gpus)};
}

// All ranks see the same cards, and come to the same end.
std::vector<RankLocation> meet(int rank, int size, const JobSettings& job_settings, Store& store,
                               const RankLocation& location) {
  Said mine = common_settings(job_settings);
  mine["place"] = location.encode();
  std::vector<RankLocation> locations;
  std::vector<Said> all;
  for (const std::string& card :
       exchange_cards(rank, size, job_settings.duration("start_timeout"), store, pack_said(mine))) {
    all.push_back(unpack_said(card));
    locations.push_back(RankLocation::decode(all.back()["place"]));
    all.back().erase("place");
  }
  if (const auto found = disagreements(all); !found.empty())
    throw UsageError(fmt::format("start: the ranks were given different settings:\n  {}",
                                 fmt::join(found, "\n  ")),
                     ExitCode::kMismatch);
  return locations;
}

}  // namespace horon
