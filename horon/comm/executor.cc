#include "horon/comm/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/comm/exact_sum.h"

namespace horon {
namespace {

// A rank asked for agreement instead of what was planned. The same on all ranks.
struct Deviated : UsageError {
  Deviated() : UsageError("another rank left the plan", ExitCode::kMismatch) {}
};

std::span<const std::byte> bytes_of(const BufferView& view) {
  return {static_cast<const std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}

void append(std::vector<std::byte>& to, const void* data, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  to.insert(to.end(), at, at + bytes);
}

// A message shorter than it says is a broken peer: an error, never a read beyond the end.
template <typename T>
T take(std::span<const std::byte>& from) {
  if (from.size() < sizeof(T)) throw Error("a peer described its operation in too few bytes");
  T value;
  std::memcpy(&value, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return value;
}

std::vector<uint64_t> take_words(std::span<const std::byte>& from, size_t bytes) {
  if (from.size() < bytes || bytes % sizeof(uint64_t) != 0) {
    throw Error("a peer described its operation in too few bytes");
  }
  std::vector<uint64_t> words(bytes / sizeof(uint64_t));
  if (bytes != 0) std::memcpy(words.data(), from.data(), bytes);
  from = from.subspan(bytes);
  return words;
}

}  // namespace

Executor::Executor(std::shared_ptr<Backend> backend, std::unique_ptr<Channel> channel,
                   Options options)
    : backend_(std::move(backend)),
      channel_(std::move(channel)),
      options_(std::move(options)),
      name_(backend_->name()),
      table_(options_.algorithm, channel_->inline_bytes()),
      last_active_(options_.members.size()),
      away_us_(options_.members.size()) {
  std::iota(last_active_.begin(), last_active_.end(), 0);
}

bool Executor::needs_staging(const Request& request) {
  const bool on_device = !request.in.device.is_cpu() || !request.out.device.is_cpu();
  const bool one_place = request.in.device == request.out.device && request.gathered == nullptr;
  const bool native =
      one_place && on_device && backend_->takes_device_memory(describe_item(request).header);
  if (on_device && !native) return true;
  return std::any_of(request.items.begin(), request.items.end(),
                     [&](const Request& item) { return needs_staging(item); });
}

bool Executor::run_unless_deviated(const Request& request) {
  try {
    run(request);
    return true;
  } catch (const Deviated&) {
    return false;
  }
}

void Executor::deviate(const OpOptions& options) {
  Header header;
  header.kind = OpKind::kDeviate;
  set_name(header, options.name);
  channel_->arrive(header, {}, options.timeout.count() > 0 ? options.timeout : options_.timeout);
}

// Device memory is staged here, once for all operations; then everything below sees host memory.
void Executor::run(const Request& request) {
  const Milliseconds timeout = request.timeout.count() > 0 ? request.timeout : options_.timeout;
  if (request.kind == OpKind::kJoin) {
    const int last = run_join(timeout);
    if (request.last_joined != nullptr) *request.last_joined = last;
    return;
  }
  if (!needs_staging(request)) return run_on_host(request, timeout);
  Request host = request;
  std::vector<Request*> parts = {&host};
  for (Request& item : host.items) parts.push_back(&item);
  std::vector<HostMirror> inputs;
  std::vector<HostMirror> outputs;
  for (Request* part : parts) {
    const bool in_place = part->in.data == part->out.data && part->in.count == part->out.count;
    inputs.emplace_back(part->in, true, options_.device.get());
    outputs.push_back(in_place ? inputs.back()
                               : HostMirror(part->out, false, options_.device.get()));
    part->in = inputs.back().view();
    part->out = outputs.back().view();
  }
  run_on_host(host, timeout);
  for (const HostMirror& output : outputs) output.write_back(options_.device.get());
}

void Executor::run_on_host(const Request& request, Milliseconds timeout) {
  Header outer;
  outer.kind = request.kind;
  outer.policy = table_.fingerprint();
  set_name(outer, request.name);
  std::vector<Item> items;
  const std::string wrong = check_request(request, index(), size());
  if (!wrong.empty()) {
    set_name(outer, wrong);
    outer.is_invalid = 1;
  } else if (request.kind == OpKind::kGroup) {
    for (const Request& item : request.items) items.push_back(describe_item(item));
    outer.items = static_cast<uint32_t>(items.size());  // check() compares them one by one
  } else {
    items.push_back(describe_item(request));
    outer = items.front().header;
  }
  const std::vector<Said> said = tell(items, outer, timeout);
  std::vector<int> active;
  check(said, active);
  try {
    for (size_t i = 0; i < items.size(); ++i) move(items[i], said[i], active, timeout);
    last_end_ = Clock::now();
  } catch (const PeerLostError&) {
    throw;
  } catch (const TimeoutError&) {
    throw;
  } catch (
      ...) {  // only here (no memory, CUDA): the others wait for us in the middle of the payload
    backend_->mark_dead({FailureKind::kLost, {options_.members[static_cast<size_t>(index())]}});
    throw;
  }
}

int Executor::run_join(Milliseconds timeout) {
  Header header;
  header.kind = OpKind::kJoin;
  while (true) {
    channel_->arrive(header, {}, timeout);
    const Agreement verdict = agree(channel_->headers(), options_.members);
    if (verdict.active.empty()) {
      const int last = last_active_.back();
      last_active_.resize(options_.members.size());
      std::iota(last_active_.begin(), last_active_.end(), 0);
      return last;
    }
    last_active_ = verdict.active;
  }
}

Executor::Item Executor::describe_item(const Request& request) {
  Item item;
  item.request = &request;
  if (request.kind == OpKind::kReduceScatter) {
    item.counts = request.counts.empty() ? even_counts(request.in.count, size()) : request.counts;
  }
  Header& header = item.header;
  header.kind = request.kind;
  header.policy = table_.fingerprint();
  set_name(header, request.name);
  if (request.kind == OpKind::kBarrier) return item;
  header.dtype = request.in.dtype;
  header.count = request.in.count;
  header.on_device = request.in.device.is_cpu() ? 0 : 1;  // what is staged is host memory by now
  header.address = request.exact == nullptr ? channel_->address_of(request.in) : kNoAddress;
  header.out_address = channel_->address_of(request.out);
  if (request.kind == OpKind::kAllReduce || request.kind == OpKind::kReduceScatter) {
    header.op = request.op;
    const bool sums = request.op == ReduceOp::kSum || request.op == ReduceOp::kAverage;
    const bool exact = request.reduction == Reduction::kExact && sums && is_float(request.in.dtype);
    header.reduction = exact ? Reduction::kExact : Reduction::kFast;
  }
  if (request.kind == OpKind::kReduceScatter) {
    const auto& counts = item.counts;
    header.layout = hash_bytes(counts.data(), counts.size() * sizeof(uint64_t));
    header.out_count = request.out.count;
  }
  if (request.kind == OpKind::kBroadcast) header.root = request.root;
  if (request.kind == OpKind::kAllGather && request.gathered == nullptr)
    header.out_count = request.out.count;
  if (request.kind == OpKind::kAllToAll) {
    item.extra = request.counts;
    item.extra.insert(item.extra.end(), request.receives.begin(), request.receives.end());
  }
  if (request.exact != nullptr) add_exact_nodes(item, *request.exact);
  header.blob_bytes = static_cast<uint32_t>(item.extra.size() * sizeof(uint64_t));
  return item;
}

void Executor::add_exact_nodes(Item& item, const ExactSum& sum) const {
  item.header.layout = sum.shards();
  for (const ExactSum::Kept& kept : sum.kept()) {
    item.extra.insert(item.extra.end(),
                      {kept.node.first, kept.node.level, channel_->address_of(kept.array.view())});
  }
}

// Whether the payload travels with the header, as far as this rank knows; it does if all think so.
bool Executor::goes_inline(const Item& item) const {
  const Request& request = *item.request;
  if (request.exact != nullptr || request.kind == OpKind::kBarrier || !request.in.device.is_cpu())
    return false;
  return table_.choose({.kind = request.kind,
                        .backend = name_,
                        .device = DeviceKind::kCpu,
                        .bytes = request.in.bytes(),
                        .ranks = size(),
                        .reachable = item.header.address != kNoAddress}) == Algorithm::kInline;
}

// Arrives with the description of all items; returns what everybody said about each of them.
std::vector<Executor::Said> Executor::tell(std::vector<Item>& items, const Header& outer,
                                           Milliseconds timeout) {
  Header header = outer;
  std::vector<std::byte> blob;
  std::span<const std::byte> told;
  const bool is_group = outer.kind == OpKind::kGroup;
  for (const Item& item : items) {
    if (is_group) append(blob, &item.header, sizeof(Header));
    append(blob, item.extra.data(), item.extra.size() * sizeof(uint64_t));
  }
  header.blob_bytes = static_cast<uint32_t>(blob.size());
  if (items.size() == 1 && !is_group && goes_inline(items[0])) {
    const bool sends = outer.kind != OpKind::kBroadcast || items[0].request->root == index();
    if (sends) told = bytes_of(items[0].request->in);
    header.is_inline = 1;
  } else if (blob.size() <= channel_->inline_bytes()) {
    told = blob;
  }
  const auto away = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - last_end_);
  header.away_us = static_cast<uint32_t>(std::clamp<int64_t>(away.count(), 0, UINT32_MAX));
  channel_->arrive(header, told, timeout);
  const auto all = channel_->headers();
  for (size_t member = 0; member < all.size(); ++member) away_us_[member] += all[member].away_us;
  if (std::any_of(all.begin(), all.end(),
                  [](const Header& one) { return one.kind == OpKind::kDeviate; }))
    throw Deviated();
  last_active_.clear();
  for (int member = 0; member < size(); ++member) {
    if (all[member].kind != OpKind::kJoin) last_active_.push_back(member);
  }
  const Agreement verdict = agree(all, options_.members);
  if (!verdict.mismatch.empty()) throw UsageError(verdict.mismatch, ExitCode::kMismatch);
  if (!is_group) {
    std::vector<Said> said(items.size());
    if (items.empty()) return said;
    said[0].headers.assign(all.begin(), all.end());
    said[0].extra.resize(static_cast<size_t>(size()));
    if (items[0].request->kind != OpKind::kAllToAll && items[0].request->exact == nullptr)
      return said;
    const auto blobs = read_blobs(blob, timeout);
    for (int member = 0; member < size(); ++member) {
      std::span<const std::byte> rest = blobs[member];
      said[0].extra[member] = take_words(rest, rest.size());
    }
    return said;
  }
  const auto blobs = read_blobs(blob, timeout);
  std::vector<Said> said(items.size());
  for (int member = 0; member < size(); ++member) {
    std::span<const std::byte> rest = blobs[member];
    const bool joined = all[member].kind == OpKind::kJoin;
    for (Said& one : said) {
      Header joined_header;
      joined_header.kind = OpKind::kJoin;
      one.headers.push_back(joined ? joined_header : take<Header>(rest));
      one.extra.push_back(joined ? std::vector<uint64_t>()
                                 : take_words(rest, one.headers.back().blob_bytes));
    }
  }
  return said;
}

// Everybody's details: from the frames if all fit, else gathered.
std::vector<std::vector<std::byte>> Executor::read_blobs(std::span<const std::byte> mine,
                                                         Milliseconds timeout) {
  const std::vector<Header> all(channel_->headers().begin(), channel_->headers().end());
  std::vector<uint64_t> counts;
  uint64_t longest = 0;
  for (const Header& header : all) {
    counts.push_back(header.kind == OpKind::kJoin ? 0 : header.blob_bytes);
    longest = std::max(longest, counts.back());
  }
  std::vector<std::vector<std::byte>> blobs(all.size());
  const auto offsets = offsets_of(counts);
  if (longest <= channel_->inline_bytes()) {
    for (int member = 0; member < size(); ++member) {
      const std::byte* data = channel_->inline_data(member);
      blobs[member].assign(data, data + counts[member]);
    }
    return blobs;
  }
  std::vector<Header> hidden = all;  // plain memory: peers cannot reach it
  for (Header& header : hidden) header.address = kNoAddress;
  std::vector<std::byte> everything(offsets.back());
  const BufferView out{everything.data(), everything.size(), DType::kU8, {}};
  const BufferView in{const_cast<std::byte*>(mine.data()), mine.size(), DType::kU8, {}};
  channel_->all_gather({hidden, last_active_, timeout, Algorithm::kDefault}, in, out, offsets);
  for (int member = 0; member < size(); ++member) {
    blobs[member].assign(everything.begin() + static_cast<ptrdiff_t>(offsets[member]),
                         everything.begin() + static_cast<ptrdiff_t>(offsets[member + 1]));
  }
  return blobs;
}

// Everything that can be wrong is known before the first payload byte moves.
void Executor::check(const std::vector<Said>& said, std::vector<int>& active) const {
  active = last_active_;
  for (size_t i = 0; i < said.size(); ++i) {
    const Said& one = said[i];
    std::string wrong = agree(one.headers, options_.members).mismatch;
    const Header& first = one.headers[active.front()];
    if (wrong.empty() && first.kind == OpKind::kAllToAll) {
      std::vector<std::vector<uint64_t>> sends(one.extra.size());
      std::vector<std::vector<uint64_t>> receives(one.extra.size());
      for (int member : active) {
        const auto& both = one.extra[member];
        const auto members = static_cast<size_t>(size());
        require(both.size() == 2 * members || both.size() == members,
                "all_to_all: a peer sent a malformed list");
        sends[member].assign(both.begin(), both.begin() + size());
        receives[member].assign(both.begin() + size(), both.end());
      }
      wrong = check_all_to_all(sends, receives, active, options_.members);
    }
    if (wrong.empty() && first.reduction == Reduction::kExact && first.layout != 0) {
      wrong = check_exact(one, active);
    }
    if (wrong.empty()) continue;
    if (said.size() > 1)
      wrong = fmt::format("operation {} of the {} of a group: {}", i + 1, said.size(), wrong);
    throw UsageError(wrong, ExitCode::kMismatch);
  }
}

std::string Executor::check_exact(const Said& said, const std::vector<int>& active) const {
  std::vector<TreeNode> leaves;
  std::vector<std::vector<TreeNode>> dealt(active.size());
  std::vector<int> ranks;
  for (size_t i = 0; i < active.size(); ++i) {
    for (const NodePlace& place : nodes_of(said.extra[active[i]])) dealt[i].push_back(place.node);
    leaves.insert(leaves.end(), dealt[i].begin(), dealt[i].end());
    ranks.push_back(options_.members[active[i]]);
  }
  if (leaves.empty()) return "exact sum: no rank contributed a shard";
  plan_tree(leaves);  // throws if a shard was contributed twice
  return check_dealing(dealt, ranks, said.headers[active.front()].layout);
}

std::vector<NodePlace> Executor::nodes_of(const std::vector<uint64_t>& words) {
  std::vector<NodePlace> nodes;
  for (size_t i = 0; i + 3 <= words.size(); i += 3) {
    nodes.push_back({{words[i], static_cast<uint32_t>(words[i + 1] & 63)}, words[i + 2]});
  }
  return nodes;
}

}  // namespace horon
