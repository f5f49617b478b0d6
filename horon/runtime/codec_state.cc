#include "horon/runtime/codec_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

constexpr uint32_t kLayout = 1;

// The state of one tensor.
struct Kept {
  std::string codec;
  std::vector<std::string> names;
  uint64_t count = 0;
  std::vector<float> arrays;
  bool fits(const Kept& other) const {
    return codec == other.codec && names == other.names && count == other.count;
  }
};

std::string pack(const Kept& kept) {
  Packer head;
  head.u32(kLayout).text(kept.codec).u64(kept.count).texts(kept.names);
  std::string bytes = make_frame(head.take());
  bytes.append(reinterpret_cast<const char*>(kept.arrays.data()),
               kept.arrays.size() * sizeof(float));
  return bytes + Packer().u32(crc32c(bytes.data(), bytes.size())).take();
}

[[noreturn]] void refuse(const std::string& tensor, const std::string& why) {
  throw Error(fmt::format("what a codec kept for '{}': {}", tensor, why), ExitCode::kCheckpoint);
}

// Reads the frame at the beginning and removes it.
std::string_view take_frame(std::string_view& bytes) {
  Unpacker from(bytes);
  const uint32_t length = from.u32();
  bytes.remove_prefix(sizeof(length));
  if (length > bytes.size()) throw Error("it is cut off", ExitCode::kCheckpoint);
  const std::string_view head = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return head;
}

Kept unpack_checked(std::string_view bytes) {
  Unpacker from(take_frame(bytes));
  if (const uint32_t layout = from.u32(); layout != kLayout)
    throw Error(fmt::format("layout {}; this version reads {}", layout, kLayout));
  Kept kept;
  kept.codec = from.text();
  kept.count = from.u64();
  kept.names = from.texts();
  from.end();
  uint64_t size = sizeof(float);
  if (__builtin_mul_overflow(size, kept.count, &size) ||
      __builtin_mul_overflow(size, kept.names.size(), &size) || size != bytes.size())
    throw Error(fmt::format("{} bytes for {} arrays of {} numbers", bytes.size(), kept.names.size(),
                            kept.count));
  kept.arrays.resize(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(kept.arrays.data(), bytes.data(), bytes.size());
  return kept;
}

Kept unpack(const std::string& tensor, std::string_view bytes) {
  constexpr size_t kSum = sizeof(uint32_t);
  if (bytes.size() < kSum) refuse(tensor, "it is cut off");
  const std::string_view body = bytes.substr(0, bytes.size() - kSum);
  if (Unpacker(bytes.substr(body.size())).u32() != crc32c(body.data(), body.size()))
    refuse(tensor, "its checksum is wrong");
  try {
    return unpack_checked(body);
  } catch (const Error& error) {
    refuse(tensor, error.what());
  }
}

// --- between ranks: a frame with names and sizes, then the bytes

std::string bundle(const CodecStates& states) {
  Packer head;
  head.u32(static_cast<uint32_t>(states.size()));
  for (const auto& [tensor, bytes] : states) head.text(tensor).u64(bytes.size());
  std::string all = make_frame(head.take());
  for (const auto& [tensor, bytes] : states) all += bytes;
  return all;
}

CodecStates unbundle(std::string_view all) {
  CodecStates states;
  Unpacker from(take_frame(all));
  for (uint32_t left = from.u32(); left > 0; --left) {
    const std::string tensor = from.text();
    const uint64_t size = from.u64();
    if (size > all.size()) refuse(tensor, "a peer sent too few bytes");
    states[tensor] = all.substr(0, size);
    all.remove_prefix(size);
  }
  from.end();
  return states;
}

// A copy of the numbers on device `to`.
OwnedBuffer moved(const OwnedBuffer& numbers, const Device& to, DeviceRuntime* device) {
  const BufferView& from = numbers.view();
  if (from.device == to || from.count == 0) return numbers;
  require(device != nullptr, "memory of a device needs the device's part; see `horon info`");
  const OwnedBuffer there = to.is_cpu() ? OwnedBuffer::host(from.count, from.dtype)
                                        : device->allocate(from.count, from.dtype, to.index);
  const auto stream = device->make_stream(to.is_cpu() ? from.device.index : to.index);
  stream->copy(there.view().data, from.data, from.bytes());
  stream->synchronize();
  return there;
}

BufferView bytes_of(std::string& text) { return {text.data(), text.size(), DType::kU8, {}}; }

}  // namespace

CodecStates deal_codec_states(std::span<const CodecStates> kept, int rank, int ranks) {
  std::map<std::string, Kept> sums;
  for (auto from = static_cast<size_t>(rank); from < kept.size();
       from += static_cast<size_t>(ranks)) {
    for (const auto& [tensor, bytes] : kept[from]) {
      Kept one = unpack(tensor, bytes);
      const auto [at, fresh] = sums.try_emplace(tensor, one);
      if (fresh) continue;
      Kept& sum = at->second;
      if (!sum.fits(one)) refuse(tensor, "ranks have different states");
      for (size_t i = 0; i < sum.arrays.size(); ++i) sum.arrays[i] += one.arrays[i];
    }
  }
  CodecStates mine;
  for (const auto& [tensor, sum] : sums) mine[tensor] = pack(sum);
  return mine;
}

std::vector<CodecStates> gather_codec_states(Communicator& comm, const CodecStates& mine) {
  const OpOptions options{.name = "codec state", .timeout = kNoLimit};
  std::string bytes = bundle(mine);
  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<uint64_t> sizes(ranks);
  std::array<uint64_t, 1> size = {bytes.size()};
  const BufferView own{size.data(), 1, DType::kI64, {}};
  comm.all_gather(own, {sizes.data(), ranks, DType::kI64, {}}, options);

  std::vector<uint64_t> sends(ranks);
  sends[0] = bytes.size();
  const bool writes = comm.rank() == 0;
  const auto receives = writes ? sizes : std::vector<uint64_t>(ranks);
  std::string all(std::accumulate(receives.begin(), receives.end(), uint64_t{0}), '\0');
  comm.all_to_all(bytes_of(bytes), sends, bytes_of(all), receives, options);
  std::vector<CodecStates> states;
  uint64_t at = 0;
  for (size_t rank = 0; writes && rank < ranks; at += sizes[rank++])
    states.push_back(unbundle(std::string_view(all).substr(at, sizes[rank])));
  return states;
}

CodecStates scatter_codec_states(Communicator& comm, std::span<const CodecStates> kept) {
  const OpOptions options{.name = "codec state", .timeout = kNoLimit};
  const auto ranks = static_cast<size_t>(comm.size());
  std::string all;
  std::vector<int64_t> sizes(ranks, -1);
  std::exception_ptr error;
  if (comm.rank() == 0) {
    try {
      for (size_t rank = 0; rank < ranks; ++rank) {
        const std::string one =
            bundle(deal_codec_states(kept, static_cast<int>(rank), comm.size()));
        sizes[rank] = static_cast<int64_t>(one.size());
        all += one;
      }
    } catch (const Error&) {
      error = std::current_exception();
      sizes.assign(ranks, -1);
    }
  }
  comm.broadcast(view_of(sizes), 0, options);  // -1: rank 0 has no valid state
  if (error) std::rethrow_exception(error);
  if (sizes[0] < 0)
    throw Error("rank 0 cannot read what codecs kept; see its message", ExitCode::kCheckpoint);
  std::string mine(static_cast<size_t>(sizes[static_cast<size_t>(comm.rank())]), '\0');
  std::vector<uint64_t> sends(ranks);
  std::vector<uint64_t> receives(ranks);
  if (comm.rank() == 0) sends.assign(sizes.begin(), sizes.end());
  receives[0] = mine.size();
  comm.all_to_all(bytes_of(all), sends, bytes_of(mine), receives, options);
  return unbundle(mine);
}

void CodecMemory::attach(const std::string& name, const Codec& codec,
                         std::vector<Segment>& segments, DeviceRuntime* device) {
  const std::vector<std::string> names = codec.state();
  if (names.empty()) return;
  const std::lock_guard lock(mutex_);
  for (Segment& segment : segments) {
    Entry& entry = entries_[segment.tensor];
    const bool fits = entry.codec == name && entry.names == names && entry.count == segment.count;
    if (!fits)
      entry = {name, names, segment.count,
               OwnedBuffer::host(segment.count * names.size(), DType::kF32)};
    entry.restored = false;
    entry.arrays = moved(entry.arrays, codec.context().device, device);
    segment.state = entry.arrays.as<float>();
  }
}

CodecStates CodecMemory::save(DeviceRuntime* device) const {
  CodecStates states;
  const std::lock_guard lock(mutex_);
  for (const auto& [tensor, entry] : entries_) {
    const OwnedBuffer here = moved(entry.arrays, {}, device);
    const std::span<const float> numbers = here.as<float>();
    states[tensor] =
        pack({entry.codec, entry.names, entry.count, {numbers.begin(), numbers.end()}});
  }
  return states;
}

void CodecMemory::restore(const CodecStates& states) {
  std::map<std::string, Entry> entries;
  for (const auto& [tensor, bytes] : states) {
    const Kept kept = unpack(tensor, bytes);
    const OwnedBuffer arrays = OwnedBuffer::host(kept.arrays.size(), DType::kF32);
    std::ranges::copy(kept.arrays, arrays.as<float>().begin());
    entries[tensor] = {kept.codec, kept.names, kept.count, arrays, true};
  }
  const std::lock_guard lock(mutex_);
  entries_ = std::move(entries);
}

void CodecMemory::check(const std::string& name, const std::string& tensor, uint64_t count) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(tensor);
  if (found == entries_.end() || !found->second.restored) return;
  const Entry& entry = found->second;
  if (entry.codec == name && entry.count == count) return;
  throw UsageError(
      fmt::format("'{}' comes with codec {} and {} numbers, but what was restored for it is of "
                  "codec {} and {} numbers; use the codec that the run was started with, or do not "
                  "restore its state",
                  tensor, name, count, entry.codec, entry.count),
      ExitCode::kCheckpoint);
}

}  // namespace horon
