#include "horon/comm/arithmetic/reduce.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <vector>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/kernels.h"

namespace horon {
namespace {

using kernels::Table;

struct Choice {
  std::array<const Table*, 3> usable{};
  std::array<std::string_view, 3> names{};
  size_t count = 0;
};

// Widest first.
Choice detect() {
  Choice choice;
  const auto add = [&](const Table& table) {
    choice.names[choice.count] = table.name;
    choice.usable[choice.count++] = &table;
  };
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;  // every CPU with AVX2 has F16C
  if (has_avx2 && __builtin_cpu_supports("avx512f") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0) {
    add(kernels::avx512_table());
  }
  if (has_avx2) add(kernels::avx2_table());
#endif
  add(kernels::generic_table());
  return choice;
}

const Choice& choice() {
  static const Choice kChoice = detect();
  return kChoice;
}

// Column of the kernel table.
size_t column_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kMin:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kProduct:
      return 3;
    case ReduceOp::kAverage:
      return 4;
  }
  throw UsageError("unknown reduce operation");
}

void run(const Table& table, const ReduceJob& job) {
  if (job.count == 0 || job.out.empty()) return;
  const bool averages = job.op == ReduceOp::kAverage;
  // A float average is its sum divided at the end; integers need the wide accumulator.
  const bool plain = averages && is_float(job.dtype);
  const size_t column = column_of(plain ? ReduceOp::kSum : job.op);
  auto* kernel = table.reduce[static_cast<size_t>(job.dtype)][column];
  require(kernel != nullptr,
          fmt::format("{} is not defined for {}", name_of(job.op), name_of(job.dtype)));
  kernel({job.in.data(), job.in.size(), job.out.data(), job.out.size(), job.count,
          averages ? job.divisor : 0});
}

}  // namespace

void reduce(const ReduceJob& job) { run(*choice().usable[0], job); }

void reduce_with(std::string_view kernels, const ReduceJob& job) {
  for (size_t i = 0; i < choice().count; ++i) {
    if (choice().names[i] == kernels) return run(*choice().usable[i], job);
  }
  throw UsageError(fmt::format("no kernels named '{}'", kernels));
}

void reduce_tree(const TreeJob& job) {
  if (job.count == 0 || job.out.empty()) return;
  require(job.dtype == DType::kF32 || job.dtype == DType::kF64, "exact sums are for f32 and f64");
  require(tree_depth(job.instructions) <= kernels::kMaxTreeDepth, "exact sum: tree too deep");
  std::vector<kernels::InstructionCode> codes;
  codes.reserve(job.instructions.size());
  for (const TreeInstruction& one : job.instructions) {
    codes.push_back({static_cast<uint8_t>(one.kind), one.a, one.b});
  }
  const kernels::TreeArgs args = {{job.in.data(), job.in.size(), job.out.data(), job.out.size(),
                                   job.count, job.divisor == 1 ? 0 : job.divisor},
                                  codes.data(),
                                  codes.size()};
  const Table& table = *choice().usable[0];
  (job.dtype == DType::kF32 ? table.tree_f32 : table.tree_f64)(args);
}

DType wide_type(DType dtype) {
  if (dtype == DType::kF16 || dtype == DType::kBF16) return DType::kF32;
  return is_float(dtype) || dtype == DType::kBool ? dtype : DType::kI64;
}

void widen(DType dtype, const void* from, void* to, uint64_t count) {
  auto* convert = choice().usable[0]->widen[static_cast<size_t>(dtype)];
  if (convert != nullptr) return convert(from, to, count);
  if (count != 0) std::memmove(to, from, count * size_of(dtype));
}

void narrow(DType dtype, const void* from, void* to, uint64_t count) {
  auto* convert = choice().usable[0]->narrow[static_cast<size_t>(dtype)];
  if (convert != nullptr) return convert(from, to, count);
  if (count != 0) std::memmove(to, from, count * size_of(dtype));
}

void accumulate(DType dtype, void* to, const void* from, uint64_t count) {
  const std::array<const void*, 2> in = {to, from};
  const std::array<void*, 1> out = {to};
  reduce(
      {.dtype = dtype, .op = ReduceOp::kSum, .divisor = 1, .in = in, .out = out, .count = count});
}

std::string_view kernel_name() { return choice().names[0]; }
std::span<const std::string_view> kernel_names() { return {choice().names.data(), choice().count}; }

}  // namespace horon
