#include "horon/comm/hier/blocks.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace horon::hier {

size_t Arrangement::size() const {
  return std::accumulate(hosts.begin(), hosts.end(), size_t{0},
                         [](size_t sum, const auto& members) { return sum + members.size(); });
}

Arrangement arrange(const Topology& topology, std::span<const int> ranks,
                    std::span<const int> active, int index) {
  Arrangement all;
  std::vector<std::vector<int>> hosts(topology.hosts.size());
  for (const int member : active) {
    hosts[static_cast<size_t>(topology.host_of(ranks[static_cast<size_t>(member)]))].push_back(
        member);
  }
  for (auto& host : hosts) {
    if (host.empty()) continue;
    const auto me = std::find(host.begin(), host.end(), index);
    if (me != host.end()) {
      all.host = all.hosts.size();
      all.position = static_cast<size_t>(me - host.begin());
    }
    all.hosts.push_back(std::move(host));
  }
  all.rails = all.hosts.front().size();
  for (const auto& host : all.hosts) all.rails = std::min(all.rails, host.size());
  return all;
}

Blocks::Blocks(const Arrangement& arrangement, std::span<const uint64_t> offsets) {
  for (const auto& host : arrangement.hosts) {
    std::vector<uint64_t> from;
    std::vector<uint64_t> inner = {0};
    for (const int member : host) {
      const auto at = static_cast<size_t>(member);
      from.push_back(offsets[at]);
      inner.push_back(inner.back() + offsets[at + 1] - offsets[at]);
      const bool follows = from.back() == from.front() + inner[inner.size() - 2];
      contiguous_ = contiguous_ && (follows || offsets[at + 1] == offsets[at]);
    }
    total_ += inner.back();
    from_.push_back(std::move(from));
    inner_.push_back(std::move(inner));
  }
  uint64_t packed = 0;
  for (size_t host = 0; host < inner_.size(); ++host) {
    first_.push_back(contiguous_ ? from_[host].front() : packed);
    packed += count(host);
  }
}

uint64_t Blocks::longest() const {
  uint64_t most = 0;
  for (const auto& inner : inner_) most = std::max(most, inner.back());
  return most;
}

BufferView Blocks::part(const BufferView& array, size_t host, uint64_t lo, uint64_t n) const {
  const uint64_t begin = std::min(lo, count(host));
  return array.slice(first_[host] + begin, std::min(n, count(host) - begin));
}

void Blocks::pack(const BufferView& array, const BufferView& packed) const {
  for (size_t host = 0; host < inner_.size(); ++host) {
    for (size_t i = 0; i < from_[host].size(); ++i) {
      const uint64_t n = inner_[host][i + 1] - inner_[host][i];
      const BufferView segment = array.slice(from_[host][i], n);
      if (n != 0)
        std::memcpy(packed.slice(first_[host] + inner_[host][i], n).data, segment.data,
                    segment.bytes());
    }
  }
}

void Blocks::unpack(const BufferView& packed, const BufferView& array) const {
  for (size_t host = 0; host < inner_.size(); ++host) {
    for (size_t i = 0; i < from_[host].size(); ++i) {
      const uint64_t n = inner_[host][i + 1] - inner_[host][i];
      const BufferView segment = array.slice(from_[host][i], n);
      if (n != 0)
        std::memcpy(segment.data, packed.slice(first_[host] + inner_[host][i], n).data,
                    segment.bytes());
    }
  }
}

}  // namespace horon::hier
