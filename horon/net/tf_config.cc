#include "horon/net/tf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "horon/base/error.h"

namespace horon {
namespace {

using nlohmann::json;

const std::vector<std::string>& known_types() {
  static const std::vector<std::string> kTypes = {"chief", "worker", "ps", "evaluator"};
  return kTypes;
}

[[noreturn]] void fail(const std::string& why) { throw UsageError("TF_CONFIG: " + why); }

void check_type(const std::string& type) {
  const auto& types = known_types();
  if (std::find(types.begin(), types.end(), type) == types.end()) {
    fail(fmt::format("unknown task type '{}'; there are: {}", type, fmt::join(types, ", ")));
  }
}

json parse_object(std::string_view text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) fail("is not JSON");
  if (!parsed.is_object()) fail("is not a JSON object");
  return parsed;
}

std::vector<Endpoint> parse_tasks(const std::string& type, const json& list) {
  if (!list.is_array()) fail(fmt::format("cluster.{} is not a list of \"host:port\"", type));
  std::vector<Endpoint> tasks;
  for (const json& entry : list) {
    if (!entry.is_string()) fail(fmt::format("cluster.{} is not a text", type));
    try {
      tasks.push_back(parse_endpoint(entry.get<std::string>()));
    } catch (const UsageError& error) {
      fail(fmt::format("cluster.{}[{}]: {}", type, tasks.size(), error.what()));
    }
  }
  return tasks;
}

void parse_cluster(const json& cluster, TfConfig& config) {
  if (!cluster.is_object()) fail("'cluster' is not an object");
  std::set<std::string> seen;
  for (const auto& [type, list] : cluster.items()) {
    check_type(type);
    std::vector<Endpoint> tasks = parse_tasks(type, list);
    if (tasks.size() > 1 && (type == "chief" || type == "evaluator"))
      fail(fmt::format("{} {}s; at most one is allowed", tasks.size(), type));
    for (const Endpoint& task : tasks) {
      if (!seen.insert(format_endpoint(task)).second)
        fail(fmt::format("two tasks have the address {}; each needs its own",
                         format_endpoint(task)));
    }
    if (!tasks.empty()) config.cluster[type] = std::move(tasks);
  }
}

void parse_task(const json& task, TfConfig& config) {
  if (!task.is_object() || !task.contains("type") || !task.contains("index"))
    fail("'task' needs \"type\" and \"index\"");
  if (!task["type"].is_string()) fail("task.type is not text");
  config.type = task["type"].get<std::string>();
  check_type(config.type);
  if (!task["index"].is_number_integer()) fail("task.index is not an integer");
  const auto index = task["index"].get<int64_t>();
  const auto found = config.cluster.find(config.type);
  if (found == config.cluster.end()) {
    if (config.type != "evaluator") fail(fmt::format("the cluster has no {}", config.type));
    if (index < 0) fail(fmt::format("task.index {} is negative", index));
  } else if (index < 0 || index >= static_cast<int64_t>(found->second.size())) {
    fail(fmt::format("task.index {}, but the cluster has {} {} task(s): 0 to {}", index,
                     found->second.size(), config.type, found->second.size() - 1));
  }
  config.index = static_cast<int>(index);
}

}  // namespace

TfConfig parse_tf_config(std::string_view text, const IsOwnAddress& is_own) {
  TfConfig config;
  if (text.empty()) return config;
  const json parsed = parse_object(text);
  if (parsed.contains("cluster")) parse_cluster(parsed["cluster"], config);
  if (config.cluster.empty()) return config;
  if (!parsed.contains("task")) fail("'task' is missing: which of the tasks is this process?");
  parse_task(parsed["task"], config);

  const auto own = config.cluster.find(config.type);
  if (own != config.cluster.end()) {
    const std::string& host = own->second[static_cast<size_t>(config.index)].host;
    if (!is_own(host)) {
      fail(fmt::format("this is {} {}, at {}, but that address is not of this host", config.type,
                       config.index, host));
    }
  }
  const auto count = [&](const char* type) {
    const auto found = config.cluster.find(type);
    return found == config.cluster.end() ? 0 : static_cast<int>(found->second.size());
  };
  const int chiefs = count("chief");
  const bool reduces = config.type == "chief" || config.type == "worker";
  config.size = chiefs + count("worker");
  config.rank = !reduces ? -1 : config.index + (config.type == "worker" ? chiefs : 0);
  config.is_chief = config.rank == 0 || config.type == "evaluator";
  if (config.size > 0) config.leader = config.cluster[chiefs > 0 ? "chief" : "worker"].front();
  return config;
}

}  // namespace horon
