#include "horon/runtime/mover.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/device/copy.h"
#include "horon/device/mirror.h"

namespace horon {
namespace {

// Where the operation leaves its result.
BufferView result_of(const Request& request) {
  return request.gathered != nullptr ? request.gathered->data.view() : request.out;
}

}  // namespace

Mover::Mover(Communicator& comm, Options options) : comm_(comm), options_(std::move(options)) {
  if (!options_.make_codec)
    options_.make_codec = [](const std::string& name) { return make_codec(name); };
}

OwnedBuffer Mover::allocate(uint64_t count, DType dtype, const Device& device) const {
  if (device.is_cpu()) return comm_.allocate(count, dtype);
  require(comm_.device() != nullptr,
          "memory of a device needs the device's part; see `horon info`");
  return comm_.device()->allocate(count, dtype, device.index);
}

// Inputs that are not outputs, too, are not written. What is reduced or broadcast is so in place.
void Mover::prepare(Request& request, double factor, std::vector<OwnedBuffer>& copies) const {
  const bool in_place =
      (request.kind == OpKind::kAllReduce || request.kind == OpKind::kBroadcast) &&
      request.exact == nullptr;
  const bool scales = factor != 1.0 && request.exact == nullptr;
  if (request.in.data != request.out.data && (in_place || scales)) {
    BufferView to = request.out;
    if (!in_place) {
      copies.push_back(allocate(request.in.count, request.in.dtype, request.in.device));
      to = copies.back().view();
    }
    copy_all({{to.data, request.in.data, request.in.bytes()}},
             static_cast<int>(usable_cores().size()), request.in.device, comm_.device());
    request.in = to;
  }
  if (scales) scale(request.in, factor, comm_.device());
}

bool Mover::move(Request request, const TensorSpec& spec, std::span<const Part> parts,
                 bool may_deviate) {
  const bool scales_first = spec.prescale != 1.0 && request.exact == nullptr;
  const bool prepares = scales_first || !spec.codec.empty();
  // With something to prepare, whether all come is found out before anything is changed.
  if (prepares && may_deviate &&
      !comm_.run_unless_deviated(
          Request::barrier({.name = request.name, .timeout = request.timeout})))
    return false;
  std::vector<OwnedBuffer> copies;
  prepare(request, spec.prescale, copies);
  for (Request& item : request.items) prepare(item, spec.prescale, copies);
  if (!spec.codec.empty()) {
    move_encoded(request, spec, parts);
  } else if (!move_plain(request, may_deviate && !prepares)) {
    return false;
  }
  // An exact sum was put together before: its sum is scaled instead of its parts.
  const double after = request.exact == nullptr ? spec.postscale : spec.prescale * spec.postscale;
  scale(result_of(request), after, comm_.device());
  for (const Request& item : request.items) scale(result_of(item), after, comm_.device());
  return true;
}

// In pieces if it is large, so that what is urgent need not wait for the whole. How it is cut is a
// matter of its size alone, the same on all ranks.
bool Mover::move_plain(const Request& request, bool may_deviate) {
  const bool one_array =
      (request.kind == OpKind::kAllReduce || request.kind == OpKind::kBroadcast) &&
      request.exact == nullptr && request.in.data == request.out.data;
  const uint64_t pieces =
      options_.urgent || !one_array || options_.chunk_bytes == 0
          ? 1
          : std::max<uint64_t>(1, (request.in.bytes() - 1) / options_.chunk_bytes + 1);
  const auto run = [&](const Request& piece) {
    if (may_deviate) return comm_.run_unless_deviated(piece);
    comm_.run(piece);
    return true;
  };
  if (pieces == 1 || request.in.count == 0) return run(request);
  const uint64_t share = (request.in.count / pieces + 64) / 64 * 64;
  for (uint64_t first = 0; first < request.in.count; first += share) {
    Request piece = request;
    piece.in = piece.out = request.in.slice(first, std::min(share, request.in.count - first));
    if (!run(piece)) return false;  // the first one only: the others follow from it
    may_deviate = false;
    if (options_.gate) options_.gate->make_way();
  }
  return true;
}

// Dense encodings are summed by the collective; sparse ones are gathered and added here.
void Mover::move_encoded(const Request& request, const TensorSpec& spec,
                         std::span<const Part> parts) {
  auto& codec = codecs_[spec.codec];
  if (!codec) codec = options_.make_codec(spec.codec);
  codec->set_threads(options_.codec_threads);
  const HostMirror host(request.in, true, comm_.device());
  const std::span<float> numbers(static_cast<float*>(host.view().data), host.view().count);
  if (codec->is_dense()) {
    move_dense(request, *codec, parts, numbers);
  } else {
    move_sparse(request, *codec, parts, numbers);
  }
  host.write_back(comm_.device());
}

BufferView Mover::wire(const Codec& codec, uint64_t count) {
  OwnedBuffer& memory = wires_[codec.name()];
  if (memory.view().count < count) memory = comm_.allocate(count, codec.wire_dtype());
  return memory.view().slice(0, count);
}

void Mover::move_dense(const Request& request, Codec& codec, std::span<const Part> parts,
                       std::span<float> numbers) {
  const BufferView all = wire(codec, numbers.size());
  const size_t width = size_of(codec.wire_dtype());
  const auto bytes_of = [&](const Part& part) {
    auto* begin = static_cast<std::byte*>(all.data) + part.offset * width;
    return std::span<std::byte>(begin, part.count * width);
  };
  for (const Part& part : parts)
    codec.encode(part.name, numbers.subspan(part.offset, part.count), bytes_of(part));
  move_plain(
      Request::all_reduce(all, {request.op, request.reduction, request.name, request.timeout}),
      false);
  for (const Part& part : parts)
    codec.decode(bytes_of(part), numbers.subspan(part.offset, part.count));
}

// Each part behind its length.
void Mover::move_sparse(const Request& request, Codec& codec, std::span<const Part> parts,
                        std::span<float> numbers) {
  uint64_t room = 0;
  for (const Part& part : parts) room += sizeof(uint64_t) + codec.max_bytes(part.count);
  const BufferView all = wire(codec, room);
  auto* const begin = static_cast<std::byte*>(all.data);
  std::byte* end = begin;
  for (const Part& part : parts) {
    const std::span<std::byte> place(end + sizeof(uint64_t), codec.max_bytes(part.count));
    const uint64_t used = codec.encode(part.name, numbers.subspan(part.offset, part.count), place);
    std::memcpy(end, &used, sizeof(used));
    end += sizeof(used) + used;
  }
  const Gathered gathered = comm_.all_gather(all.slice(0, static_cast<uint64_t>(end - begin)),
                                             {.name = request.name, .timeout = request.timeout});
  std::fill(numbers.begin(), numbers.end(), 0.0F);
  const auto* at = static_cast<const std::byte*>(gathered.data.view().data);
  int contributors = 0;
  for (const uint64_t length : gathered.counts) {
    std::span<const std::byte> rest(at, length);
    at += length;
    if (rest.empty()) continue;  // has joined
    ++contributors;
    for (const Part& part : parts) {
      uint64_t used = 0;
      if (rest.size() >= sizeof(used)) std::memcpy(&used, rest.data(), sizeof(used));
      if (rest.size() < sizeof(used) || rest.size() - sizeof(used) < used)
        throw Error("codec " + codec.name() + ": a peer sent too few bytes", ExitCode::kPeer);
      codec.decode_add(rest.subspan(sizeof(used), used), numbers.subspan(part.offset, part.count));
      rest = rest.subspan(sizeof(used) + used);
    }
  }
  const BufferView sum{numbers.data(), numbers.size(), DType::kF32, {}};
  if (request.op == ReduceOp::kAverage) scale(sum, 1.0 / std::max(contributors, 1));
}

}  // namespace horon
