#include "horon/comm/engine/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/comm/engine/staging.h"
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

bool reduces(OpKind kind) { return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter; }

// Other types and operations have the same bits anyway.
Reduction reduction_of(const Request& request) {
  const bool sums = request.op == ReduceOp::kSum || request.op == ReduceOp::kAverage;
  const bool exact = request.reduction == Reduction::kExact && sums && is_float(request.in.dtype);
  return exact ? Reduction::kExact : Reduction::kFast;
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
      table_(backend_->algorithms(), backend_->name(), options_.algorithm),
      inline_bytes_(channel_->inline_bytes()),
      active_(options_.members.size()),
      away_us_(options_.members.size()) {
  std::iota(active_.begin(), active_.end(), 0);
}

// Device memory stays where it is if the backend has a row for it, and all of it is in one place.
bool Executor::needs_staging(const Request& request) const {
  const bool on_device = !request.in.device.is_cpu() || !request.out.device.is_cpu();
  const bool one_place = request.in.device == request.out.device && request.gathered == nullptr;
  if (on_device && !(one_place && table_.find(situation_of(request, kNoAddress)) != nullptr))
    return true;
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

// Device memory that no row is for is staged here, once for all operations.
void Executor::run(const Request& request) {
  const Milliseconds timeout = request.timeout.count() > 0 ? request.timeout : options_.timeout;
  if (request.kind == OpKind::kJoin) {
    const int last = run_join(timeout);
    if (request.last_joined != nullptr) *request.last_joined = last;
    return;
  }
  if (!needs_staging(request)) return run_on_host(request, timeout);
  const StagedRequest staged(request, options_.device.get());
  run_on_host(staged.host(), timeout);
  staged.write_back();
}

void Executor::run_on_host(const Request& request, Milliseconds timeout) {
  std::vector<Item> items;
  const Header header = describe(request, items);
  const bool is_group = request.kind == OpKind::kGroup;
  const std::vector<std::byte> details = pack_details(items, is_group);
  arrive(items, header, details, timeout);
  agree_on_headers();
  const std::vector<Said> said = read_said(items, is_group, details, timeout);
  check(said, is_group);
  try {
    chosen_ = nullptr;
    for (size_t i = 0; i < items.size(); ++i) move(items[i], said[i], timeout);
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
    const HeaderVerdict verdict = agree(channel_->headers(), options_.members);
    if (verdict.active.empty()) {
      const int last = active_.back();
      active_.resize(options_.members.size());
      std::iota(active_.begin(), active_.end(), 0);
      return last;
    }
    active_ = verdict.active;
  }
}

Header Executor::describe(const Request& request, std::vector<Item>& items) const {
  const std::string wrong = check_request(request, index(), size());
  if (wrong.empty() && request.kind != OpKind::kGroup) {
    items.push_back(describe_item(request));
    return items.front().header;
  }
  Header header;
  header.kind = request.kind;
  header.policy = table_.fingerprint();
  set_name(header, wrong.empty() ? request.name : wrong);
  header.is_invalid = wrong.empty() ? 0 : 1;
  if (!wrong.empty()) return header;
  for (const Request& item : request.items) items.push_back(describe_item(item));
  header.items = static_cast<uint32_t>(items.size());  // check() compares them one by one
  return header;
}

Executor::Item Executor::describe_item(const Request& request) const {
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
  if (header.on_device == 0) {
    header.address = request.exact == nullptr ? channel_->address_of(request.in) : kNoAddress;
    header.out_address = channel_->address_of(request.out);
  }
  if (reduces(request.kind)) {
    header.op = request.op;
    header.reduction = reduction_of(request);
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

std::vector<std::byte> Executor::pack_details(const std::vector<Item>& items, bool is_group) {
  std::vector<std::byte> details;
  for (const Item& item : items) {
    if (is_group) append(details, &item.header, sizeof(Header));
    append(details, item.extra.data(), item.extra.size() * sizeof(uint64_t));
  }
  return details;
}

// As far as this rank knows; the payload does travel with the header if all think so.
bool Executor::goes_inline(const Item& item) const {
  const AlgorithmRow* row = table_.find(situation_of(*item.request, item.header.address));
  return row != nullptr && row->algorithm == Algorithm::kInline;
}

Situation Executor::situation_of(const Request& request, uint64_t address) const {
  const bool on_host = request.in.device.is_cpu();
  return {.kind = request.kind,
          .reduction = reduction_of(request),
          .device = request.in.device.kind,
          .dtype = request.in.dtype,
          .op = request.op,
          .bytes = request.in.bytes(),
          .ranks = size(),
          .fits_header = on_host && request.exact == nullptr && request.in.bytes() <= inline_bytes_,
          .reachable = address != kNoAddress};
}

// Tells the others what is coming, with the payload or the details beside it where they fit.
void Executor::arrive(const std::vector<Item>& items, Header header,
                      std::span<const std::byte> details, Milliseconds timeout) {
  std::span<const std::byte> told;
  header.blob_bytes = static_cast<uint32_t>(details.size());
  if (items.size() == 1 && header.kind != OpKind::kGroup && goes_inline(items[0])) {
    const bool sends = header.kind != OpKind::kBroadcast || items[0].request->root == index();
    if (sends) told = bytes_of(items[0].request->in);
    header.is_inline = 1;
  } else if (details.size() <= inline_bytes_) {
    told = details;
  }
  const auto away = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - last_end_);
  header.away_us = static_cast<uint32_t>(std::clamp<int64_t>(away.count(), 0, UINT32_MAX));
  channel_->arrive(header, told, timeout);
}

void Executor::agree_on_headers() {
  const auto all = channel_->headers();
  for (size_t member = 0; member < all.size(); ++member) away_us_[member] += all[member].away_us;
  if (std::any_of(all.begin(), all.end(),
                  [](const Header& one) { return one.kind == OpKind::kDeviate; }))
    throw Deviated();
  HeaderVerdict verdict = agree(all, options_.members);
  active_ = std::move(verdict.active);
  if (!verdict.mismatch.empty()) throw UsageError(verdict.mismatch, ExitCode::kMismatch);
}

// What everybody said about each item.
std::vector<Executor::Said> Executor::read_said(const std::vector<Item>& items, bool is_group,
                                                std::span<const std::byte> details,
                                                Milliseconds timeout) {
  if (is_group) return read_group(items.size(), read_blobs(details, timeout));
  std::vector<Said> said(1);
  const auto all = channel_->headers();
  said[0].headers.assign(all.begin(), all.end());
  said[0].extra.resize(all.size());
  if (items[0].request->kind != OpKind::kAllToAll && items[0].request->exact == nullptr)
    return said;
  const auto blobs = read_blobs(details, timeout);
  for (size_t member = 0; member < blobs.size(); ++member) {
    std::span<const std::byte> rest = blobs[member];
    said[0].extra[member] = take_words(rest, rest.size());
  }
  return said;
}

std::vector<Executor::Said> Executor::read_group(
    size_t items, const std::vector<std::vector<std::byte>>& blobs) const {
  std::vector<Said> said(items);
  for (size_t member = 0; member < blobs.size(); ++member) {
    std::span<const std::byte> rest = blobs[member];
    const bool joined = channel_->headers()[member].kind == OpKind::kJoin;
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
  if (longest <= inline_bytes_) {
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
  const Algorithm way = table_.choose({.kind = OpKind::kAllGather,
                                       .dtype = DType::kU8,
                                       .bytes = longest,
                                       .ranks = static_cast<int>(active_.size()),
                                       .everybody = active_.size() == all.size()});
  channel_->all_gather({hidden, active_, timeout, way}, in, out, offsets);
  for (int member = 0; member < size(); ++member) {
    blobs[member].assign(everything.begin() + static_cast<ptrdiff_t>(offsets[member]),
                         everything.begin() + static_cast<ptrdiff_t>(offsets[member + 1]));
  }
  return blobs;
}

// Everything that can be wrong is known before the first payload byte moves. The headers of a lone
// operation were agreed on as it arrived; those of a group are among its details.
void Executor::check(const std::vector<Said>& said, bool is_group) const {
  for (size_t i = 0; i < said.size(); ++i) {
    const Said& one = said[i];
    std::string wrong = is_group ? agree(one.headers, options_.members).mismatch : "";
    const Header& first = one.headers[active_.front()];
    if (wrong.empty() && first.kind == OpKind::kAllToAll) wrong = check_sends(one);
    if (wrong.empty() && first.reduction == Reduction::kExact && first.layout != 0)
      wrong = check_exact(one);
    if (wrong.empty()) continue;
    if (said.size() > 1)
      wrong = fmt::format("operation {} of the {} of a group: {}", i + 1, said.size(), wrong);
    throw UsageError(wrong, ExitCode::kMismatch);
  }
}

std::string Executor::check_sends(const Said& said) const {
  std::vector<std::vector<uint64_t>> sends(said.extra.size());
  std::vector<std::vector<uint64_t>> receives(said.extra.size());
  for (int member : active_) {
    const auto& both = said.extra[member];
    const auto members = static_cast<size_t>(size());
    require(both.size() == 2 * members || both.size() == members,
            "all_to_all: a peer sent a malformed list");
    sends[member].assign(both.begin(), both.begin() + size());
    receives[member].assign(both.begin() + size(), both.end());
  }
  return check_all_to_all(sends, receives, active_, options_.members);
}

std::string Executor::check_exact(const Said& said) const {
  std::vector<TreeNode> leaves;
  std::vector<std::vector<TreeNode>> dealt(active_.size());
  std::vector<int> ranks;
  for (size_t i = 0; i < active_.size(); ++i) {
    for (const NodeArray& place : nodes_of(said.extra[active_[i]])) dealt[i].push_back(place.node);
    leaves.insert(leaves.end(), dealt[i].begin(), dealt[i].end());
    ranks.push_back(options_.members[active_[i]]);
  }
  if (leaves.empty()) return "exact sum: no rank contributed a shard";
  plan_tree(leaves);  // throws if a shard was contributed twice
  return check_dealing(dealt, ranks, said.headers[active_.front()].layout);
}

std::vector<NodeArray> Executor::nodes_of(const std::vector<uint64_t>& words) {
  std::vector<NodeArray> nodes;
  for (size_t i = 0; i + 3 <= words.size(); i += 3) {
    nodes.push_back({{words[i], static_cast<uint32_t>(words[i + 1] & 63)}, words[i + 2]});
  }
  return nodes;
}

}  // namespace horon
