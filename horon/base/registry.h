#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {

// Maps names to factories. Filled explicitly by register_builtin_x(registry); there is no static
// self-registration. Owns the factories; references from find() are valid as long as the registry.
// Not thread-safe while it is being filled, afterwards any thread may read.
template <typename Factory>
class Registry {
 public:
  // `kind` is used in messages: "codec", "model".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // UsageError if the name is registered already.
  void add(const std::string& name, Factory factory) {
    require(entries_.emplace(name, std::move(factory)).second,
            fmt::format("{} '{}' is registered twice", kind_, name));
  }

  // Throws UsageError that lists the known names and the nearest one.
  const Factory& find(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return found->second;
    const std::vector<std::string> known = names();
    const std::string close = nearest(name, known);
    throw UsageError(fmt::format("unknown {} '{}'{}; there are: {}", kind_, name,
                                 close.empty() ? "" : fmt::format(", did you mean '{}'?", close),
                                 fmt::join(known, ", ")));
  }

  // All names, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto& [name, factory] : entries_) list.push_back(name);
    return list;
  }

 private:
  std::string kind_;
  std::map<std::string, Factory> entries_;
};

}  // namespace horon
