#include "horon/comm/request.h"

#include <fmt/format.h>

#include <numeric>

#include "horon/comm/exact_sum.h"

namespace horon {
namespace {

uint64_t total_of(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

Request plain(OpKind kind, const OpOptions& options) {
  Request request;
  request.kind = kind;
  request.name = options.name;
  request.timeout = options.timeout;
  return request;
}

Request reducing(OpKind kind, const ReduceOptions& options) {
  Request request = plain(kind, {options.name, options.timeout});
  request.op = options.op;
  request.reduction = options.reduction;
  return request;
}

std::string check_reduction(const Request& request) {
  const DType dtype = request.in.dtype;
  if (request.op == ReduceOp::kAverage && dtype == DType::kBool)
    return "average is not defined for bool";
  if (request.reduction != Reduction::kExact) return "";
  const bool sums = request.op == ReduceOp::kSum || request.op == ReduceOp::kAverage;
  if (sums && (dtype == DType::kF16 || dtype == DType::kBF16)) return "exact needs f32 or f64";
  if (request.kind == OpKind::kReduceScatter && sums && is_float(dtype))
    return "exact is for all_reduce";
  return "";
}

std::string check_exact(const Request& request) {
  const BufferView& spec = request.exact->spec();
  if (request.op != ReduceOp::kSum && request.op != ReduceOp::kAverage)
    return "an exact sum is a sum or average";
  if (request.out.count != spec.count || request.out.dtype != spec.dtype)
    return "output unlike the exact sum";
  return "";
}

std::string check_split(const Request& request, int size) {
  if (request.counts.size() != static_cast<size_t>(size)) {
    return fmt::format("{} counts for {} ranks", request.counts.size(), size);
  }
  if (total_of(request.counts) != request.in.count) {
    return fmt::format("counts add up to {}, input has {}", total_of(request.counts),
                       request.in.count);
  }
  return "";
}

std::string check_segment(const Request& request, int rank, int size) {
  const auto counts = request.counts.empty() ? even_counts(request.in.count, size) : request.counts;
  if (request.out.count != counts[static_cast<size_t>(rank)]) {
    return fmt::format("room for {} of {} elements", request.out.count,
                       counts[static_cast<size_t>(rank)]);
  }
  return check_reduction(request);
}

}  // namespace

Request Request::all_reduce(BufferView data, const ReduceOptions& options) {
  Request request = reducing(OpKind::kAllReduce, options);
  request.in = request.out = data;
  return request;
}

Request Request::all_reduce(const ExactSum& sum, BufferView out, const ReduceOptions& options) {
  Request request = reducing(OpKind::kAllReduce, options);
  request.reduction = Reduction::kExact;
  request.exact = &sum;
  request.in = request.out = out;
  return request;
}

Request Request::reduce_scatter(BufferView in, BufferView out, std::vector<uint64_t> counts,
                                const ReduceOptions& options) {
  Request request = reducing(OpKind::kReduceScatter, options);
  request.in = in;
  request.out = out;
  request.counts = std::move(counts);
  return request;
}

Request Request::all_gather(BufferView in, BufferView out, const OpOptions& options) {
  Request request = plain(OpKind::kAllGather, options);
  request.in = in;
  request.out = out;
  return request;
}

Request Request::all_gather(BufferView in, Gathered& gathered, const OpOptions& options) {
  Request request = plain(OpKind::kAllGather, options);
  request.in = in;
  request.out = {nullptr, 0, in.dtype, in.device};
  request.gathered = &gathered;
  return request;
}

Request Request::broadcast(BufferView data, int root, const OpOptions& options) {
  Request request = plain(OpKind::kBroadcast, options);
  request.in = request.out = data;
  request.root = root;
  return request;
}

Request Request::all_to_all(BufferView in, std::vector<uint64_t> sends, BufferView out,
                            std::vector<uint64_t> receives, const OpOptions& options) {
  Request request = plain(OpKind::kAllToAll, options);
  request.in = in;
  request.out = out;
  request.counts = std::move(sends);
  request.receives = std::move(receives);
  return request;
}

Request Request::all_to_all(BufferView in, std::vector<uint64_t> sends, Gathered& gathered,
                            const OpOptions& options) {
  Request request = plain(OpKind::kAllToAll, options);
  request.in = in;
  request.out = {nullptr, 0, in.dtype, in.device};
  request.counts = std::move(sends);
  request.gathered = &gathered;
  return request;
}

Request Request::barrier(const OpOptions& options) { return plain(OpKind::kBarrier, options); }

Request Request::group(std::vector<Request> items, const OpOptions& options) {
  Request request = plain(OpKind::kGroup, options);
  request.items = std::move(items);
  return request;
}

Request Request::join(int& last_joined, const OpOptions& options) {
  Request request = plain(OpKind::kJoin, options);
  request.last_joined = &last_joined;
  return request;
}

std::string check_request(const Request& request, int rank, int size) {
  if (request.in.count != 0 && request.in.data == nullptr && request.exact == nullptr)
    return "null input";
  if (request.out.count != 0 && request.out.data == nullptr) return "null output";
  if (request.timeout.count() < 0) return "negative timeout";
  switch (request.kind) {
    case OpKind::kAllReduce:
      return request.exact != nullptr ? check_exact(request) : check_reduction(request);
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll: {
      const bool even = request.kind == OpKind::kReduceScatter && request.counts.empty();
      const std::string wrong = even ? "" : check_split(request, size);
      if (!wrong.empty() || request.in.dtype != request.out.dtype)
        return wrong.empty() ? "types differ" : wrong;
      if (request.kind == OpKind::kReduceScatter) return check_segment(request, rank, size);
      if (request.gathered != nullptr) return "";
      const bool fits = request.receives.size() == static_cast<size_t>(size) &&
                        total_of(request.receives) == request.out.count;
      return fits ? "" : "receive counts do not fit the output";
    }
    case OpKind::kAllGather:
      return request.in.dtype == request.out.dtype ? "" : "types of input and output differ";
    case OpKind::kBroadcast:
      return request.root >= 0 && request.root < size
                 ? ""
                 : fmt::format("no root {} of {}", request.root, size);
    case OpKind::kGroup:
      for (const Request& item : request.items) {
        const bool nested = item.kind == OpKind::kGroup || item.kind == OpKind::kJoin;
        const std::string wrong =
            nested ? "no group or join in a group" : check_request(item, rank, size);
        if (!wrong.empty()) return wrong;
      }
      return "";
    default:
      return "";
  }
}

std::vector<uint64_t> even_counts(uint64_t total, int size) {
  std::vector<uint64_t> counts(static_cast<size_t>(size), total / static_cast<uint64_t>(size));
  for (uint64_t i = 0; i < total % static_cast<uint64_t>(size); ++i) ++counts[i];
  return counts;
}

}  // namespace horon
