#include "horon/comm/once.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"

namespace horon {

void once_per_host(Communicator& comm, const std::function<void()>& action) {
  const Topology& topology = comm.topology();
  std::string failure;

  // The first member on each host.
  int first = topology.rank;
  for (const int member : comm.members()) {
    if (topology.host_of(member) == topology.cross_rank) first = std::min(first, member);
  }
  if (first == topology.rank) {
    try {
      action();
    } catch (const Error& error) {
      failure = static_cast<char>(error.exit_code()) + std::string(error.what());
    } catch (const std::exception& error) {
      failure = static_cast<char>(ExitCode::kFailure) + std::string(error.what());
    }
  }
  const Gathered all = comm.all_gather(BufferView{failure.data(), failure.size(), DType::kU8, {}},
                                       {.name = "once_per_host", .timeout = kNoLimit});
  const auto* at = static_cast<const char*>(all.data.view().data);
  for (size_t i = 0; i < all.counts.size(); at += all.counts[i++]) {
    if (all.counts[i] == 0) continue;
    throw Error(
        fmt::format("rank {}: {}", comm.members()[i], std::string_view(at + 1, all.counts[i] - 1)),
        static_cast<ExitCode>(at[0]));
  }
}

}  // namespace horon
