// The operations of a runtime: turns calls into specs and requests.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "horon/base/error.h"
#include "horon/runtime/process_set.h"

namespace horon {
namespace {

TensorSpec spec_of(const std::string& name, const Request& request, const NamedOptions& options,
                   const std::string& layout, const CodecRegistry& codecs) {
  TensorSpec spec;
  spec.name = name;
  spec.kind = request.kind;
  spec.dtype = request.in.dtype;
  spec.count = request.in.count;
  spec.op = request.op;
  spec.reduction = request.reduction;
  spec.root = request.root;
  spec.prescale = options.prescale;
  spec.postscale = options.postscale;
  spec.priority = options.priority;
  spec.layout = short_layout(layout);
  spec.device = request.in.device;
  spec.tag = options.tag;
  const bool scales = options.prescale != 1.0 || options.postscale != 1.0;
  if (scales && spec.dtype == DType::kBool)
    throw UsageError("bools cannot be scaled: " + describe(spec));

  spec.codec = options.codec == "none" ? "" : options.codec;
  if (!spec.codec.empty()) {
    const bool fits = spec.kind == OpKind::kAllReduce && spec.dtype == DType::kF32 &&
                      layout.empty() && spec.reduction == Reduction::kFast &&
                      (spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage);
    if (!fits) {
      throw UsageError(fmt::format("codec {} is for a fast all_reduce of f32, sum or average: {}",
                                   spec.codec, describe(spec)));
    }
    const auto codec = codecs.make(spec.codec);  // report an unknown name now
    require(!name.empty() || codec->state().empty(),
            "codec " + spec.codec + " remembers by name; give the operation one");
  }
  return spec;
}

std::string describe_split(const std::vector<uint64_t>& counts) {
  return counts.empty() ? "" : fmt::format("split {}", fmt::join(counts, ", "));
}

ReduceOptions reduce_options(const NamedOptions& options) {
  ReduceOptions reduce;
  reduce.op = options.op;
  reduce.reduction = options.reduction;
  return reduce;
}

}  // namespace

// An average over the members is a sum with a factor.
NamedOptions Runtime::resolve(const NamedOptions& given) const {
  NamedOptions options = given;
  options.over_members = false;
  if (given.over_members && options.op == ReduceOp::kAverage) {
    options.op = ReduceOp::kSum;
    options.postscale /= static_cast<double>(find_set(options.set)->ranks.size());
  }
  return options;
}

Work Runtime::submit(const std::string& name, Request request, const NamedOptions& options,
                     bool blocks, const std::string& layout) {
  const auto set = find_set(options.set);
  request.ready = options.ready;
  request.done = options.done;
  TensorSpec spec = spec_of(name, request, options, layout, options_.codecs);
  if (!spec.codec.empty()) set->codec_memory->check(spec.codec, name, spec.count);
  require(spec.device.is_cpu() || world_->device() != nullptr,
          "memory of a device needs the device's part; see `horon info`");
  if (name.empty()) {
    request.timeout = request.kind == OpKind::kBarrier ? kNoLimit : options_.timeout;
    // Headers contain names, which are compared, but no factors and tags.
    if (spec.prescale != 1.0 || spec.postscale != 1.0)
      request.name = fmt::format("scaled by {} and {}", spec.prescale, spec.postscale);
    if (spec.tag != 0)
      request.name += fmt::format("{}tagged {:x}", request.name.empty() ? "" : ", ", spec.tag);
    // Staged through the host it would be cut into other pieces than host memory on another rank.
    if (!spec.device.is_cpu())
      request.name += fmt::format("{}in device memory", request.name.empty() ? "" : ", ");
    if (!blocks) return set->unnamed->start(std::move(spec), std::move(request), options.step);
    set->unnamed->run(spec, request, options.step);
    return Work();
  }
  Lane& lane = set->lane_of(name);
  Work work = lane.submit(std::move(spec), std::move(request), options.step, blocks);
  if (!blocks) return work;
  work.wait();
  return Work();
}

Work Runtime::all_reduce(const std::string& name, BufferView data, const NamedOptions& options) {
  return all_reduce(name, data, data, options);
}

Work Runtime::all_reduce(const std::string& name, BufferView in, BufferView out,
                         const NamedOptions& options) {
  require(in.count == out.count && in.dtype == out.dtype && in.device == out.device,
          "all_reduce: input and output are not alike");
  if (options.over_members) return all_reduce(name, in, out, resolve(options));
  Request request = Request::all_reduce(in, reduce_options(options));
  request.out = out;
  return submit(name, std::move(request), options, false);
}

Work Runtime::all_reduce(const std::string& name, const std::vector<BufferView>& parts,
                         const NamedOptions& options) {
  std::vector<Request> items;
  for (const BufferView& part : parts)
    items.push_back(Request::all_reduce(part, reduce_options(options)));
  return group(name, std::move(items), options);
}

Work Runtime::group(const std::string& name, std::vector<Request> items,
                    const NamedOptions& options) {
  const NamedOptions how = resolve(options);
  std::string layout;
  for (Request& item : items) {
    require(item.kind != OpKind::kAllToAll, "an all_to_all is not for a group");
    item.op = how.op;
    item.reduction = how.reduction;
    TensorSpec spec = spec_of("", item, how, {}, options_.codecs);
    spec.prescale = spec.postscale = 1.0;                 // given once, for the whole group
    if (item.kind == OpKind::kAllGather) spec.count = 0;  // may differ by rank
    spec.tag = 0;
    layout += fmt::format("{}{}", layout.empty() ? "" : ", ", describe(spec));
  }
  if (layout.empty()) layout = "nothing";
  return submit(name, Request::group(std::move(items)), how, false, layout);
}

Work Runtime::all_reduce(const std::string& name, const ExactSum& sum, BufferView out,
                         const NamedOptions& options) {
  return submit(name, Request::all_reduce(sum, out, reduce_options(options)), options, false,
                fmt::format("{} shards", sum.shards()));
}

Work Runtime::reduce_scatter(const std::string& name, BufferView in, BufferView out,
                             std::vector<uint64_t> counts, const NamedOptions& options) {
  if (options.over_members)
    return reduce_scatter(name, in, out, std::move(counts), resolve(options));
  const std::string layout = describe_split(counts);
  return submit(name, Request::reduce_scatter(in, out, std::move(counts), reduce_options(options)),
                options, false, layout);
}

Work Runtime::all_gather(const std::string& name, BufferView in, Gathered& gathered,
                         const NamedOptions& options) {
  return submit(name, Request::all_gather(in, gathered), options, false);
}

Work Runtime::all_gather(const std::string& name, BufferView in, BufferView out,
                         const NamedOptions& options) {
  return submit(name, Request::all_gather(in, out), options, false);
}

Work Runtime::broadcast(const std::string& name, BufferView data, int root,
                        const NamedOptions& options) {
  return broadcast(name, data, data, root, options);
}

Work Runtime::broadcast(const std::string& name, BufferView in, BufferView out, int root,
                        const NamedOptions& options) {
  require(in.count == out.count && in.dtype == out.dtype && in.device == out.device,
          "broadcast: input and output are not alike");
  Request request = Request::broadcast(in, root);
  request.out = out;
  return submit(name, std::move(request), options, false);
}

Work Runtime::all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                         BufferView out, std::vector<uint64_t> receives,
                         const NamedOptions& options) {
  return submit(name, Request::all_to_all(in, std::move(sends), out, std::move(receives)), options,
                false);
}

Work Runtime::all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                         Gathered& gathered, const NamedOptions& options) {
  return submit(name, Request::all_to_all(in, std::move(sends), gathered), options, false);
}

Work Runtime::barrier(const std::string& name, const NamedOptions& options) {
  return submit(name, Request::barrier(), options, false);
}

void Runtime::run_all_reduce(const std::string& name, BufferView data,
                             const NamedOptions& options) {
  if (options.over_members) return run_all_reduce(name, data, resolve(options));
  submit(name, Request::all_reduce(data, reduce_options(options)), options, true);
}

bool Runtime::withdraw(const std::string& name, int set) {
  return find_set(set)->lane_of(name).withdraw(name);
}

TensorSpec Runtime::declared_spec(const std::string& name, BufferView like,
                                  const NamedOptions& options) const {
  const NamedOptions how = resolve(options);
  return spec_of(name, Request::all_reduce(like, reduce_options(how)), how, {}, options_.codecs);
}

}  // namespace horon
