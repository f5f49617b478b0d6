#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "horon/data/format/convert.h"
#include "horon/data/order.h"

// The formats that convert_dataset writes.
namespace horon {

// State shared by the writers of one conversion.
struct ConvertJob {
  ConvertJob(const Dataset& set, const ConvertOptions& how, std::string what)
      : from(set), options(how), identity(std::move(what)) {}
  // Reports `more` finished samples; Error (interrupted) after a stop request. Thread-safe.
  void tell(uint64_t more);

  const Dataset& from;
  const ConvertOptions& options;
  const std::string identity;      // identifies source and options
  std::vector<std::string> files;  // written files

 private:
  std::mutex mutex_;  // guards the one below
  uint64_t done_ = 0;
};

// The name of a class in files and labels.txt.
std::string name_of_class(const Dataset& from, int64_t label);

using ConvertWriter = std::function<void(ConvertJob&)>;
// UsageError for an unknown format.
const ConvertWriter& find_writer(const std::string& format);

}  // namespace horon
