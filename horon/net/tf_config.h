#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "horon/net/socket.h"

namespace horon {

// The content of TF_CONFIG: the tasks of a cluster, and which of them this process is.
struct TfConfig {
  std::map<std::string, std::vector<Endpoint>> cluster;  // chief, worker, ps, evaluator
  std::string type = "worker";
  int index = 0;

  // Chief and workers reduce together: the chief is rank 0, worker i is rank i + number of chiefs.
  // -1 for ps and evaluator.
  int rank = 0;
  int size = 1;
  // Writes checkpoints and logs: the chief, worker 0 if there is none, and the evaluator.
  bool is_chief = true;
  // Where rank 0 serves the store; meaningless when size is 1.
  Endpoint leader;
};

using IsOwnAddress = std::function<bool(const std::string& host)>;

// Pure: `json` is the variable's text; `is_own` says whether a host is this one. "" and "{}" mean
// one local worker. UsageError for everything that would later cause a hang or confuse tasks:
// invalid JSON, no task, unknown type, index out of range, two tasks at one address, more than one
// chief or evaluator, an own address that is not of this host.
TfConfig parse_tf_config(std::string_view json, const IsOwnAddress& is_own);

}  // namespace horon
