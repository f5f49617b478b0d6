#pragma once

#include <map>
#include <string>

#include "horon/comm/bootstrap.h"

namespace horon::testing_support {

// "--name value" pairs of a rank program.
class RankArgs {
 public:
  RankArgs(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) values_[std::string(argv[i]).substr(2)] = argv[i + 1];
  }
  std::string text(const std::string& name, const std::string& fallback = "") const {
    const auto found = values_.find(name);
    return found == values_.end() ? fallback : found->second;
  }
  int number(const std::string& name, int fallback) const {
    return std::stoi(text(name, std::to_string(fallback)));
  }

  // Rank, size, store and backend as given; --hosts K pretends K hosts (rank modulo K), --knob-x
  // sets x.
  BootstrapInfo bootstrap() const {
    BootstrapInfo info;
    info.rank = number("rank", 0);
    info.size = number("size", 1);
    if (!text("store").empty()) info.store = make_file_store(text("store"));
    info.job_settings.set("backend", text("backend", "auto"), "test");
    const int hosts = number("hosts", 0);
    if (hosts > 0)
      info.job_settings.set("host_id", "host" + std::to_string(info.rank % hosts), "test");
    for (const auto& [name, value] : values_) {
      if (name.rfind("knob-", 0) == 0) info.job_settings.set(name.substr(5), value, "test");
    }
    return info;
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace horon::testing_support
