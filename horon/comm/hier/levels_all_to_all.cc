// all_to_all in two levels. Data for other hosts is copied to the member of this host that is on
// the receiver's rail, sent to the receiver's host, and copied to the receiver if it is on no rail.
// Arrays between the phases are packed in the order of each lambda's loops.
#include <cstring>

#include "horon/comm/hier/levels.h"

namespace horon::hier {
namespace {

// Copies consecutive segments out of an array, or into one.
class Cursor {
 public:
  explicit Cursor(const BufferView& array) : array_(array) {}
  BufferView next(uint64_t count) {
    at_ += count;
    return array_.slice(at_ - count, count);
  }
  void take(const BufferView& from) {
    const BufferView to = next(from.count);
    if (from.count != 0) std::memcpy(to.data, from.data, from.bytes());
  }

 private:
  BufferView array_;
  uint64_t at_ = 0;
};

}  // namespace

void Levels::all_to_all(const Round& round, BufferView in, BufferView out,
                        const std::vector<std::vector<uint64_t>>& sends) {
  begin(round);
  deliver(in, send_across(send_to_rails(in, sends), sends), out, sends);
}

// Of each member of this host, for each receiver on the rail of this one: [member][host][receiver].
BufferView Levels::send_to_rails(const BufferView& in,
                                 const std::vector<std::vector<uint64_t>>& sends) {
  const auto& here = all_.here();
  // What a member sends to other hosts through a rail.
  const auto for_rail = [&](int member, size_t rail, const auto& visit) {
    for (size_t host = 0; host < all_.hosts.size(); ++host) {
      if (host == all_.host) continue;
      for (size_t at = 0; at < all_.hosts[host].size(); ++at) {
        const auto to = static_cast<size_t>(all_.hosts[host][at]);
        if (rail_of(at) == rail) visit(to, sends[static_cast<size_t>(member)][to]);
      }
    }
  };
  std::vector<std::vector<uint64_t>> counts(here.size(), std::vector<uint64_t>(here.size(), 0));
  for (size_t from = 0; from < here.size(); ++from) {
    for (size_t rail = 0; rail < all_.rails; ++rail)
      for_rail(here[from], rail, [&](size_t, uint64_t n) { counts[from][rail] += n; });
  }
  const BufferView outgoing = scratch(kFirst, offsets_of(counts[all_.position]).back(), in.dtype);
  const auto segments = offsets_of(sends[static_cast<size_t>(index_)]);
  Cursor packed(outgoing);
  for (size_t rail = 0; rail < all_.rails; ++rail)
    for_rail(index_, rail, [&](size_t to, uint64_t n) { packed.take(in.slice(segments[to], n)); });
  uint64_t total = 0;
  for (const auto& from : counts) total += from[all_.position];
  const BufferView collected = scratch(kSecond, total, in.dtype);
  const Round round =
      inside({.kind = OpKind::kAllToAll, .bytes = outgoing.bytes()}, outgoing, collected);
  local_->all_to_all(round, outgoing, collected, counts);
  return collected;
}

// Data received for members on this one's rail: [host][its member][receiver].
BufferView Levels::send_across(const BufferView& collected,
                               const std::vector<std::vector<uint64_t>>& sends) {
  const auto n_hosts = all_.hosts.size();
  if (!rail_) return {collected.data, 0, collected.dtype, {}};
  const auto on_rail = [&](size_t from, size_t host, const auto& visit) {
    for (size_t at = all_.position; at < all_.hosts[host].size(); at += all_.rails)
      visit(sends[from][static_cast<size_t>(all_.hosts[host][at])]);
  };
  std::vector<std::vector<uint64_t>> counts(n_hosts, std::vector<uint64_t>(n_hosts, 0));
  for (size_t from = 0; from < n_hosts; ++from) {
    for (size_t to = 0; to < n_hosts; ++to) {
      for (const int member : all_.hosts[from]) {
        if (from != to)
          on_rail(static_cast<size_t>(member), to, [&](uint64_t n) { counts[from][to] += n; });
      }
    }
  }
  const BufferView outgoing = scratch(kThird, collected.count, collected.dtype);
  const auto offsets = offsets_of(counts[all_.host]);
  std::vector<Cursor> to_host;
  for (size_t host = 0; host < n_hosts; ++host)
    to_host.emplace_back(outgoing.slice(offsets[host], counts[all_.host][host]));
  Cursor from_here(collected);
  for (const int member : all_.here()) {
    for (size_t host = 0; host < n_hosts; ++host) {
      if (host == all_.host) continue;
      on_rail(static_cast<size_t>(member), host,
              [&](uint64_t n) { to_host[host].take(from_here.next(n)); });
    }
  }
  uint64_t total = 0;
  for (const auto& from : counts) total += from[all_.host];
  const BufferView crossed = scratch(kWhole, total, collected.dtype);
  rail_->all_to_all(across(OpKind::kAllToAll, outgoing.bytes()), outgoing, crossed, counts);
  return crossed;
}

// Inside the host: each member's own data for each other one, followed by data for it from other
// hosts.
void Levels::deliver(const BufferView& in, const BufferView& crossed, const BufferView& out,
                     const std::vector<std::vector<uint64_t>>& sends) {
  const auto& here = all_.here();
  // From all members of other hosts, in the order in which they were received.
  const auto from_elsewhere = [&](const auto& visit) {
    for (size_t host = 0; host < all_.hosts.size(); ++host) {
      for (const int member : all_.hosts[host]) {
        if (host != all_.host) visit(static_cast<size_t>(member));
      }
    }
  };
  std::vector<std::vector<uint64_t>> counts(here.size(), std::vector<uint64_t>(here.size(), 0));
  for (size_t from = 0; from < here.size(); ++from) {
    for (size_t to = 0; to < here.size(); ++to) {
      const auto receiver = static_cast<size_t>(here[to]);
      counts[from][to] = sends[static_cast<size_t>(here[from])][receiver];
      if (rail_of(to) != from) continue;
      from_elsewhere([&](size_t member) { counts[from][to] += sends[member][receiver]; });
    }
  }
  const auto offsets = offsets_of(counts[all_.position]);
  const BufferView outgoing = scratch(kFirst, offsets.back(), in.dtype);
  std::vector<Cursor> to_member;
  const auto segments = offsets_of(sends[static_cast<size_t>(index_)]);
  for (size_t to = 0; to < here.size(); ++to) {
    const auto receiver = static_cast<size_t>(here[to]);
    to_member.emplace_back(outgoing.slice(offsets[to], counts[all_.position][to]));
    to_member.back().take(
        in.slice(segments[receiver], sends[static_cast<size_t>(index_)][receiver]));
  }
  Cursor came(crossed);
  from_elsewhere([&](size_t member) {
    for (size_t to = all_.position; rail_ && to < here.size(); to += all_.rails)
      to_member[to].take(came.next(sends[member][static_cast<size_t>(here[to])]));
  });
  uint64_t total = 0;
  for (const auto& from : counts) total += from[all_.position];
  const BufferView incoming = scratch(kSecond, total, in.dtype);
  const Round round =
      inside({.kind = OpKind::kAllToAll, .bytes = outgoing.bytes()}, outgoing, incoming);
  local_->all_to_all(round, outgoing, incoming, counts);
  std::vector<uint64_t> received;
  for (const auto& from : sends) received.push_back(from[static_cast<size_t>(index_)]);
  const auto places = offsets_of(received);
  Cursor arrived(incoming);
  const auto put = [&](size_t member) {
    const BufferView segment = arrived.next(received[member]);
    if (segment.count != 0)
      std::memcpy(out.slice(places[member], segment.count).data, segment.data, segment.bytes());
  };
  for (size_t from = 0; from < here.size(); ++from) {
    put(static_cast<size_t>(here[from]));
    if (rail_of(all_.position) == from) from_elsewhere(put);
  }
}

}  // namespace horon::hier
