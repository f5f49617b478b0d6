// The NCCL part: a backend around another one. Headers, host buffers and whatever NCCL does not
// have go through the inner backend; device buffers of types and operations that NCCL has stay on
// the device.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "horon/base/api.h"
#include "horon/base/error.h"
#include "horon/base/version.h"
#include "horon/comm/engine/channel.h"
#include "horon/comm/nccl/nccl_part.h"

namespace horon {
namespace {

void check(cudaError_t status, const char* action) {
  if (status != cudaSuccess)
    throw Error(fmt::format("CUDA: {}: {}", action, cudaGetErrorString(status)));
}

void check(ncclResult_t status, const char* action) {
  if (status != ncclSuccess && status != ncclInProgress) {
    throw Error(fmt::format("NCCL: {}: {}", action, ncclGetErrorString(status)));
  }
}

std::optional<ncclDataType_t> type_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return ncclUint8;
    case DType::kI8:
      return ncclInt8;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    default:
      return std::nullopt;  // i16 and bool: NCCL has neither
  }
}

std::optional<ncclRedOp_t> op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAverage:
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  return std::nullopt;
}

class NcclChannel final : public Channel {
 public:
  NcclChannel(std::unique_ptr<Channel> inner, std::shared_ptr<Backend> backend,
              std::shared_ptr<DeviceRuntime> device, std::vector<int> members, int gpu)
      : inner_(std::move(inner)),
        backend_(std::move(backend)),
        device_(std::move(device)),
        members_(std::move(members)),
        gpu_(gpu) {}
  ~NcclChannel() override {
    if (comm_ != nullptr) ncclCommAbort(comm_);
  }

  int index() const override { return inner_->index(); }
  int size() const override { return inner_->size(); }
  size_t inline_bytes() const override { return inner_->inline_bytes(); }
  void arrive(const Header& header, std::span<const std::byte> inline_data,
              Milliseconds timeout) override {
    inner_->arrive(header, inline_data, timeout);
  }
  std::span<const Header> headers() const override { return inner_->headers(); }
  const std::byte* inline_data(int member) const override { return inner_->inline_data(member); }
  uint64_t address_of(const BufferView& view) const override { return inner_->address_of(view); }

  void all_reduce(const Round& round, BufferView data, ReduceOp op) override {
    if (!is_native(round)) return inner_->all_reduce(round, data, op);
    launch(round, data, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(data.data, data.data, data.count, *type_of(data.dtype), *op_of(op), comm,
                           stream);
    });
  }
  void broadcast(const Round& round, BufferView data, int root) override {
    if (!is_native(round)) return inner_->broadcast(round, data, root);
    launch(round, data, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(data.data, data.data, data.count, *type_of(data.dtype), root, comm,
                           stream);
    });
  }
  // Uneven sizes: one broadcast from each member, fused into one launch.
  void all_gather(const Round& round, BufferView in, BufferView out,
                  std::span<const uint64_t> offsets) override {
    if (!is_native(round)) return inner_->all_gather(round, in, out, offsets);
    launch(round, out, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclGroupStart(), "group");
      for (int member = 0; member < size(); ++member) {
        const BufferView place = out.slice(offsets[member], offsets[member + 1] - offsets[member]);
        if (place.count == 0) continue;
        const void* from = member == index() ? in.data : place.data;
        check(
            ncclBroadcast(from, place.data, place.count, *type_of(in.dtype), member, comm, stream),
            "gather");
      }
      return ncclGroupEnd();
    });
  }
  // Never with device memory: there is no row for it.
  void reduce_scatter(const Round& round, BufferView in, BufferView out,
                      std::span<const uint64_t> offsets, ReduceOp op) override {
    inner_->reduce_scatter(round, in, out, offsets, op);
  }
  void all_to_all(const Round& round, BufferView in, BufferView out,
                  const std::vector<std::vector<uint64_t>>& sends) override {
    inner_->all_to_all(round, in, out, sends);
  }
  void reduce_tree(const Round& round, const TreeCall& call) override {
    inner_->reduce_tree(round, call);
  }

 private:
  static bool is_native(const Round& round) { return round.algorithm == Algorithm::kNative; }

  template <typename Body>
  void launch(const Round& round, const BufferView& data, Body body) {
    require(data.count == 0 || data.device.index == gpu_,
            fmt::format("nccl: the memory of this rank must be on its GPU, {}, not on {}", gpu_,
                        data.device.index));
    check(cudaSetDevice(gpu_), "set device");
    connect(round);
    if (!round.is_ready) stream_->follow_caller();
    auto* stream = static_cast<cudaStream_t>(stream_->handle());
    check(body(comm_, stream), "start");
    wait(round, [&] { return is_settled() && is_done(stream); });
  }

  // The id of a new NCCL communicator travels in the frames of the inner channel.
  void connect(const Round& round) {
    if (comm_ != nullptr) return;
    stream_ = device_->make_stream(gpu_);
    ncclUniqueId id{};
    if (index() == 0) check(ncclGetUniqueId(&id), "make an id");
    Header mine = round.headers[index()];
    mine.blob_bytes = sizeof(id);
    const auto* bytes = reinterpret_cast<const std::byte*>(&id);
    inner_->arrive(mine, {bytes, sizeof(id)}, round.timeout);
    std::memcpy(&id, inner_->inline_data(0), sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // every call returns at once and is waited for below
    check(ncclCommInitRankConfig(&comm_, size(), id, index(), &config), "connect the GPUs");
    wait(round, [&] { return is_settled(); });
  }

  // False while NCCL is still busy with a call; throws what it ended with.
  bool is_settled() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ask for errors");
    check(state, "run");
    return state != ncclInProgress;
  }

  static bool is_done(cudaStream_t stream) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) check(state, "run");
    return state == cudaSuccess;
  }

  // Polls, so that an error of NCCL, a lost peer or the deadline ends the wait.
  template <typename Done>
  void wait(const Round& round, Done done) {
    const Deadline deadline = Deadline::after(round.timeout);
    for (uint64_t turn = 1; !done(); ++turn) {
      const bool looks = turn % 64 == 0;
      if (deadline.passed() || (looks && backend_->failure())) give_up(round);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  // The first failure that the inner backend knows stands; else the others did not come.
  [[noreturn]] void give_up(const Round& round) {
    ncclCommAbort(comm_);
    comm_ = nullptr;
    std::vector<int> others = members_;
    others.erase(others.begin() + index());
    const Failure failure{FailureKind::kTimeout, others, round.timeout};
    backend_->mark_dead(failure);
    inner_->arrive(round.headers[index()], {}, round.timeout);  // throws what stands
    raise(failure, describe(round.headers[index()]), members_[index()]);
  }

  std::unique_ptr<Channel> inner_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<DeviceRuntime> device_;
  std::vector<int> members_;
  int gpu_;
  std::unique_ptr<Stream> stream_;
  ncclComm_t comm_ = nullptr;
};

class NcclBackend final : public Backend {
 public:
  NcclBackend(std::unique_ptr<Backend> inner, std::shared_ptr<DeviceRuntime> device, int gpu)
      : inner_(std::move(inner)), device_(std::move(device)), gpu_(gpu) {}
  std::string name() const override { return "nccl(" + inner_->name() + ")"; }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) override {
    return std::make_unique<NcclChannel>(inner_->open_channel(members, id), inner_, device_,
                                         std::vector<int>(members.begin(), members.end()), gpu_);
  }
  OwnedBuffer allocate(uint64_t count, DType dtype) override {
    return inner_->allocate(count, dtype);
  }
  std::optional<Failure> failure() const override { return inner_->failure(); }
  double seconds_encrypting() const override { return inner_->seconds_encrypting(); }
  void mark_dead(const Failure& failure) override { inner_->mark_dead(failure); }
  std::vector<AlgorithmRow> algorithms() const override {
    std::vector<AlgorithmRow> rows = nccl_algorithms();
    const std::vector<AlgorithmRow> inner = inner_->algorithms();
    rows.insert(rows.end(), inner.begin(), inner.end());
    return rows;
  }

 private:
  std::shared_ptr<Backend> inner_;
  std::shared_ptr<DeviceRuntime> device_;
  int gpu_;
};

}  // namespace
}  // namespace horon

extern "C" {

HORON_API const char* horon_part_version() { return horon::kBuildId; }

HORON_API horon::Backend* horon_nccl_backend(std::unique_ptr<horon::Backend>* inner,
                                             std::shared_ptr<horon::DeviceRuntime>* device,
                                             int local_rank, std::string* why) {
  try {
    const int gpus = (*device)->device_count();
    if ((*inner)->size() > 1 && local_rank >= gpus) {
      *why = fmt::format("local rank {} has no GPU of its own: this host has {}", local_rank, gpus);
      return nullptr;
    }
    return new horon::NcclBackend(std::move(*inner), *device, local_rank % gpus);
  } catch (const std::exception& error) {
    *why = error.what();
    return nullptr;
  }
}
}
