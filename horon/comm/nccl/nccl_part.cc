#include "horon/comm/nccl/nccl_part.h"

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/comm/engine/select.h"

namespace horon {
namespace {

bool has_type(DType dtype) { return dtype != DType::kI16 && dtype != DType::kBool; }

constexpr Condition kMoves{"nobody has joined; no i16, bool", [](const Situation& situation) {
                             return situation.everybody && has_type(situation.dtype);
                           }};
// What NCCL does as we document it: an average of small integers would overflow in its sum, 16-bit
// floats are accumulated in 16 bits, and NaN is not passed on by its min and max.
constexpr Condition kReduces{
    "nobody has joined; f32, f64: sum, average, product; integers but i16: no average",
    [](const Situation& situation) {
      if (!situation.everybody || !has_type(situation.dtype)) return false;
      const bool wide = situation.dtype == DType::kF32 || situation.dtype == DType::kF64;
      if (wide) return situation.op != ReduceOp::kMin && situation.op != ReduceOp::kMax;
      return !is_float(situation.dtype) && situation.op != ReduceOp::kAverage;
    }};

}  // namespace

std::vector<AlgorithmRow> nccl_algorithms() {
  using enum OpKind;
  constexpr Algorithm kNative = Algorithm::kNative;
  constexpr DeviceKind kCuda = DeviceKind::kCuda;
  return {
      {.kind = kAllReduce, .algorithm = kNative, .only = &kReduces, .device = kCuda},
      {.kind = kAllGather, .algorithm = kNative, .only = &kMoves, .device = kCuda},
      {.kind = kBroadcast, .algorithm = kNative, .only = &kMoves, .device = kCuda},
  };
}

std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> base,
                                           const NcclOptions& options,
                                           std::shared_ptr<DeviceRuntime> device) {
  const auto part = Part::open("nccl", options.part_folders);
  if (!device) device = open_cuda_runtime(options.part_folders);
  using Factory =
      Backend*(std::unique_ptr<Backend>*, std::shared_ptr<DeviceRuntime>*, int, std::string*);
  std::string why;
  Backend* made =
      part->function<Factory>("horon_nccl_backend")(&base, &device, options.local_rank, &why);
  if (made == nullptr) throw UsageError("nccl: " + why);
  return std::unique_ptr<Backend>(made);
}

}  // namespace horon
