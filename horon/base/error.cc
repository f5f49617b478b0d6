#include "horon/base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>

namespace horon {

IoError io_error(std::string_view action) {
  const int saved = errno;
  return IoError(fmt::format("{}: {}", action, std::strerror(saved)));
}

std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace horon
