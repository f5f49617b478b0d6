#include "horon/runtime/mover.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/device/copy.h"
#include "horon/device/mirror.h"

namespace horon {
namespace {

// The buffer that receives the operation's result.
BufferView result_of(const Request& request) {
  return request.gathered != nullptr ? request.gathered->data.view() : request.out;
}

std::span<std::byte> bytes_of(const BufferView& view) {
  return {static_cast<std::byte*>(view.data), view.bytes()};
}
std::span<float> numbers_of(const BufferView& view) {
  return {static_cast<float*>(view.data), view.count};
}

// What can be moved in pieces.
bool is_one_array(const Request& request) {
  return (request.kind == OpKind::kAllReduce || request.kind == OpKind::kBroadcast) &&
         request.exact == nullptr && request.in.data == request.out.data;
}

void copy(void* to, const void* from, uint64_t bytes, Stream* stream) {
  if (stream != nullptr) {
    stream->copy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}
void finish(Stream* stream) {
  if (stream != nullptr) stream->synchronize();
}

// " at step 12"; empty if no step was given.
std::string describe_steps(const std::vector<Segment>& segments) {
  std::set<uint64_t> steps;
  for (const Segment& segment : segments) {
    if (segment.step) steps.insert(*segment.step);
  }
  return steps.empty() ? "" : fmt::format(" at step {}", fmt::join(steps, ", "));
}

}  // namespace

Mover::Mover(Communicator& comm, Options options)
    : comm_(comm), options_(std::move(options)), stage_(comm) {
  if (!options_.memory) options_.memory = std::make_shared<CodecMemory>();
}

OwnedBuffer Mover::allocate(uint64_t count, DType dtype, const Device& device) const {
  if (device.is_cpu()) return comm_.allocate(count, dtype);
  require(comm_.device() != nullptr,
          "memory of a device needs the device's part; see `horon info`");
  return comm_.device()->allocate(count, dtype, device.index);
}

// Inputs that are not also outputs are not written. Reductions and broadcasts work in place.
void Mover::prepare(Request& request, double factor, std::vector<OwnedBuffer>& copies) const {
  const bool in_place =
      (request.kind == OpKind::kAllReduce || request.kind == OpKind::kBroadcast) &&
      request.exact == nullptr;
  const bool scales = factor != 1.0 && request.exact == nullptr;
  const bool is_ready = request.ready != nullptr;
  if (request.in.data != request.out.data && (in_place || scales)) {
    BufferView to = request.out;
    if (!in_place) {
      copies.push_back(allocate(request.in.count, request.in.dtype, request.in.device));
      to = copies.back().view();
    }
    copy_all({{to.data, request.in.data, request.in.bytes()}},
             static_cast<int>(usable_cores().size()), request.in.device, comm_.device(), is_ready);
    request.in = to;
  }
  if (scales) scale(request.in, factor, comm_.device(), is_ready);
}

bool Mover::move(Request request, const TensorSpec& spec, std::vector<Segment> segments,
                 bool may_deviate) {
  const bool encodes = !spec.codec.empty();
  const std::string steps = encodes ? describe_steps(segments) : "";
  request.name += steps;  // ranks compare names
  const bool scales_first = spec.prescale != 1.0 && request.exact == nullptr;
  const bool prepares = scales_first || encodes;
  const auto all_come = [&] {
    return Request::barrier({.name = request.name, .timeout = request.timeout});
  };
  // If something must be prepared, find out first whether all ranks take part, before anything is
  // changed.
  if (prepares && may_deviate && !comm_.run_unless_deviated(all_come())) return false;
  if (!may_deviate && !steps.empty()) comm_.run(all_come());
  std::vector<OwnedBuffer> copies;
  prepare(request, spec.prescale, copies);
  for (Request& item : request.items) prepare(item, spec.prescale, copies);
  if (encodes) {
    move_encoded(request, spec, segments);
  } else if (is_staged(request)) {  // scaled on its way through the host
    return move_staged(request, spec.postscale, may_deviate && !prepares);
  } else if (!move_plain(request, may_deviate && !prepares)) {
    return false;
  }
  // An exact sum was assembled earlier: scale its sum instead of its parts.
  const double after = request.exact == nullptr ? spec.postscale : spec.prescale * spec.postscale;
  scale(result_of(request), after, comm_.device(), true);
  for (const Request& item : request.items) scale(result_of(item), after, comm_.device(), true);
  return true;
}

bool Mover::is_staged(const Request& request) const {
  return is_one_array(request) && request.in.count > 0 && comm_.stages(request);
}

// `after`: a factor on the result.
bool Mover::move_staged(const Request& request, double after, bool may_deviate) {
  return stage_.move(request.in, request.ready != nullptr, [&](const BufferView& host) {
    Request piece = request;
    piece.in = piece.out = host;
    // Only the first can deviate: the others follow from it.
    if (may_deviate && !comm_.run_unless_deviated(piece)) return false;
    if (!may_deviate) comm_.run(piece);
    may_deviate = false;
    scale(host, after);
    if (options_.gate && !options_.urgent) options_.gate->make_way();
    return true;
  });
}

// Splits large transfers so that urgent ones need not wait for the whole. The split depends only on
// the size, so it is the same on all ranks.
bool Mover::move_plain(const Request& request, bool may_deviate) {
  if (is_staged(request)) return move_staged(request, 1.0, may_deviate);
  const bool one_array = is_one_array(request);
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
  const uint64_t piece_elements = (request.in.count / pieces + 64) / 64 * 64;
  for (uint64_t first = 0; first < request.in.count; first += piece_elements) {
    Request piece = request;
    piece.in = piece.out =
        request.in.slice(first, std::min(piece_elements, request.in.count - first));
    if (!run(piece)) return false;  // only the first can fail: the others follow from it
    may_deviate = false;
    if (options_.gate) options_.gate->make_way();
  }
  return true;
}

// Dense encodings are summed by the collective; sparse ones are gathered and added here.
void Mover::move_encoded(const Request& request, const TensorSpec& spec,
                         std::vector<Segment>& segments) {
  auto& codec = codecs_[spec.codec];
  if (!codec) codec = options_.codecs.make(spec.codec);
  std::optional<HostMirror> staged;
  const bool is_ready = request.ready != nullptr;
  if (!codec->takes(request.in.device)) staged.emplace(request.in, true, comm_.device(), is_ready);
  const BufferView numbers = staged ? staged->view() : request.in;
  std::unique_ptr<Stream> stream;
  if (!numbers.device.is_cpu()) stream = comm_.device()->make_stream(numbers.device.index);
  if (stream != nullptr && !is_ready) stream->follow_caller();
  codec->set_context({options_.codec_threads, numbers.device, stream.get()});
  options_.memory->attach(spec.codec, *codec, segments, comm_.device());
  const Encoded what{*codec, spec, segments, numbers, stream.get()};
  if (codec->is_dense()) {
    move_dense(request, what);
  } else {
    move_sparse(request, what);
  }
  if (staged) staged->write_back(comm_.device());
}

BufferView Mover::wire(const Encoded& what, uint64_t count) {
  OwnedBuffer& memory = wires_[what.spec.codec];
  if (memory.view().count < count || memory.view().device != what.numbers.device)
    memory = allocate(count, what.codec.wire_dtype(), what.numbers.device);
  return memory.view().slice(0, count);
}

void Mover::move_dense(const Request& request, const Encoded& what) {
  const BufferView all = wire(what, what.numbers.count);
  const std::span<std::byte> bytes = bytes_of(all);
  what.codec.encode(numbers_of(what.numbers), what.segments, bytes);
  finish(what.stream);
  move_plain(
      Request::all_reduce(all, {request.op, request.reduction, request.name, request.timeout}),
      false);
  what.codec.decode(bytes, what.segments, numbers_of(what.numbers));
  finish(what.stream);
}

// Each rank's encoding is preceded by its length. So an empty encoding differs from the empty
// contribution of a rank that has joined.
void Mover::move_sparse(const Request& request, const Encoded& what) {
  uint64_t used = 0;
  const uint64_t most = what.codec.max_bytes(what.numbers.count, what.segments);
  const BufferView all = wire(what, sizeof(used) + most);
  used = what.codec.encode(numbers_of(what.numbers), what.segments,
                           bytes_of(all).subspan(sizeof(used)));
  copy(all.data, &used, sizeof(used), what.stream);
  finish(what.stream);
  const Gathered gathered = comm_.all_gather(all.slice(0, sizeof(used) + used),
                                             {.name = request.name, .timeout = request.timeout});
  add_up(gathered, request, what);
}

// Adds in rank order: the same bits everywhere.
void Mover::add_up(const Gathered& gathered, const Request& request, const Encoded& what) {
  const BufferView here = gathered.data.view();
  OwnedBuffer there;  // the same bytes, in the memory where the codec works
  if (what.stream != nullptr && here.count > 0) {
    there = allocate(here.count, here.dtype, what.numbers.device);
    copy(there.view().data, here.data, here.bytes(), what.stream);
  }
  const std::span<std::byte> wires = bytes_of(what.stream != nullptr ? there.view() : here);
  const std::span<float> sum = numbers_of(what.numbers);
  int contributors = 0;
  uint64_t at = 0;
  for (const uint64_t length : gathered.counts) {
    if (length == 0) continue;  // has joined
    uint64_t used = 0;
    if (length >= sizeof(used)) std::memcpy(&used, bytes_of(here).data() + at, sizeof(used));
    if (length < sizeof(used) || length - sizeof(used) != used)
      throw Error("codec " + what.spec.codec + ": a peer sent bytes of another length",
                  ExitCode::kPeer);
    const std::span<std::byte> one = wires.subspan(at + sizeof(used), used);
    if (contributors++ == 0) {
      what.codec.decode(one, what.segments, sum);
    } else {
      what.codec.decode_add(one, what.segments, sum);
    }
    at += length;
  }
  finish(what.stream);
  if (request.op == ReduceOp::kAverage)
    scale(what.numbers, 1.0 / std::max(contributors, 1), comm_.device());
}

}  // namespace horon
