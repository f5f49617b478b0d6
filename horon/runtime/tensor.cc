#include "horon/runtime/tensor.h"

#include <fmt/format.h>

#include <bit>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

bool has_own_count(OpKind kind) { return kind == OpKind::kAllGather || kind == OpKind::kAllToAll; }

}  // namespace

bool same_request(const TensorSpec& a, const TensorSpec& b) {
  return a.is_urgent() == b.is_urgent() && a.kind == b.kind && a.dtype == b.dtype &&
         (a.count == b.count || has_own_count(a.kind)) && a.op == b.op &&
         a.reduction == b.reduction && a.root == b.root && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.layout == b.layout && a.codec == b.codec &&
         a.tag == b.tag && a.device.kind == b.device.kind && a.name == b.name;
}

bool can_fuse(const TensorSpec& a, const TensorSpec& b) {
  return a.kind == OpKind::kAllReduce && b.kind == OpKind::kAllReduce && a.dtype == b.dtype &&
         a.op == b.op && a.reduction == b.reduction && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.layout.empty() && b.layout.empty() && a.codec == b.codec &&
         a.device == b.device;
}

std::string describe(const TensorSpec& spec) {
  std::string text(name_of(spec.kind));
  const bool reduces = spec.kind == OpKind::kAllReduce || spec.kind == OpKind::kReduceScatter;
  if (reduces) text += fmt::format(" {}", name_of(spec.op));
  if (spec.kind != OpKind::kBarrier && spec.kind != OpKind::kGroup)
    text += fmt::format(" {}[{}]", name_of(spec.dtype), spec.count);
  if (!spec.layout.empty()) text += fmt::format(" ({})", spec.layout);
  if (spec.reduction == Reduction::kExact) text += " exact";
  if (spec.kind == OpKind::kBroadcast) text += fmt::format(" from root {}", spec.root);
  if (spec.prescale != 1.0 || spec.postscale != 1.0)
    text += fmt::format(" scaled by {} and {}", spec.prescale, spec.postscale);
  if (!spec.codec.empty()) text += fmt::format(" as {}", spec.codec);
  if (!spec.device.is_cpu()) text += " on a device";
  if (spec.is_urgent()) text += " urgent";
  if (spec.tag != 0) text += fmt::format(" tagged {:x}", spec.tag);
  return text + fmt::format(" '{}'", spec.name);
}

std::string short_layout(std::string text) {
  constexpr size_t kMost = 200;
  if (text.size() <= kMost) return text;
  const uint64_t hash = hash_text(text);
  return fmt::format("{}... {:x}", text.substr(0, kMost), hash);
}

std::string pack_specs(const std::vector<TensorSpec>& specs) {
  Packer to;
  to.u32(static_cast<uint32_t>(specs.size()));
  for (const TensorSpec& spec : specs) {
    to.text(spec.name).u8(static_cast<uint8_t>(spec.kind)).u8(static_cast<uint8_t>(spec.dtype));
    to.u64(spec.count).u8(static_cast<uint8_t>(spec.op)).u8(static_cast<uint8_t>(spec.reduction));
    to.u32(static_cast<uint32_t>(spec.root)).u64(std::bit_cast<uint64_t>(spec.prescale));
    to.u64(std::bit_cast<uint64_t>(spec.postscale)).u32(static_cast<uint32_t>(spec.priority));
    to.text(spec.layout).text(spec.codec).u8(static_cast<uint8_t>(spec.device.kind));
    to.u64(spec.tag);
  }
  return to.take();
}

std::vector<TensorSpec> unpack_specs(std::string_view bytes) {
  Unpacker from(bytes);
  const uint32_t count = from.u32();
  if (count > bytes.size()) throw Error("runtime: an invalid report", ExitCode::kPeer);
  std::vector<TensorSpec> specs(count);
  for (TensorSpec& spec : specs) {
    spec.name = from.text();
    spec.kind = static_cast<OpKind>(from.u8());
    spec.dtype = static_cast<DType>(from.u8());
    spec.count = from.u64();
    spec.op = static_cast<ReduceOp>(from.u8());
    spec.reduction = static_cast<Reduction>(from.u8());
    spec.root = static_cast<int32_t>(from.u32());
    spec.prescale = std::bit_cast<double>(from.u64());
    spec.postscale = std::bit_cast<double>(from.u64());
    spec.priority = static_cast<int32_t>(from.u32());
    spec.layout = from.text();
    spec.codec = from.text();
    spec.device.kind = static_cast<DeviceKind>(from.u8());
    spec.tag = from.u64();
    if (static_cast<size_t>(spec.dtype) >= kDTypeCount)
      throw Error("runtime: a report with an unknown type", ExitCode::kPeer);
  }
  from.end();
  return specs;
}

}  // namespace horon
