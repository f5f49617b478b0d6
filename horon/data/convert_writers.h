#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "horon/data/convert.h"
#include "horon/data/order.h"

// The formats that convert_dataset writes.
namespace horon {

// What the writers share.
struct ConvertJob {
  ConvertJob(const Dataset& set, const ConvertOptions& how, std::string what)
      : from(set), options(how), identity(std::move(what)) {}
  // So many more samples are done; Error (interrupted) if somebody wants it to stop. Thread-safe.
  void tell(uint64_t more);

  const Dataset& from;
  const ConvertOptions& options;
  const std::string identity;      // of what is made from what
  std::vector<std::string> files;  // that are there in the end

 private:
  std::mutex mutex_;  // guards the one below
  uint64_t done_ = 0;
};

// Names of the classes as files and labels.txt have them.
std::string name_of_class(const Dataset& from, int64_t label);

using ConvertWriter = std::function<void(ConvertJob&)>;
// UsageError for an unknown format.
const ConvertWriter& find_writer(const std::string& format);

}  // namespace horon
