// What training computes on a GPU besides the network: gradients taken into buckets, and updates of
// all weights in one kernel. Compiled with -fmad=false, so that elements get the CPU's bits.
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "horon/optim/device_math.h"
#include "horon/optim/optimizer_table.h"

namespace horon::optim {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kChunk = 8192;  // elements of a block

void check(cudaError_t status, const char* action) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + action + ": " + cudaGetErrorString(status));
}

__global__ void take_kernel(float* to, const float* from, uint64_t count, bool adds,
                            uint32_t* flaws) {
  uint32_t bad = 0;
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float value = from[i];
    bad += isfinite(value) ? 0 : 1;
    to[i] = adds ? to[i] + value : value;
  }
  if (bad > 0) atomicAdd(flaws, bad);
}

struct Chunk {
  uint32_t segment;
  uint64_t start;
};

// One block for a segment; always in the same order.
__global__ void norm_kernel(const DeviceMath::Segment* segments, double2* norms) {
  __shared__ double weights[kThreads];
  __shared__ double gradients[kThreads];
  const DeviceMath::Segment segment = segments[blockIdx.x];
  double w = 0;
  double g = 0;
  for (uint64_t i = threadIdx.x; i < segment.count; i += kThreads) {
    w += static_cast<double>(segment.parameter[i]) * segment.parameter[i];
    g += static_cast<double>(segment.gradient[i]) * segment.gradient[i];
  }
  weights[threadIdx.x] = w;
  gradients[threadIdx.x] = g;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      weights[threadIdx.x] += weights[threadIdx.x + half];
      gradients[threadIdx.x] += gradients[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) norms[blockIdx.x] = {sqrt(weights[0]), sqrt(gradients[0])};
}

// An optimizer's arrays of state.
struct State {
  float* arrays[kMostArrays];
};

template <typename F, size_t... K>
__device__ void update_element(const UpdateRule& rule, float& w, float g, const State& state,
                               uint64_t at, std::index_sequence<K...>) {
  F::update(
      rule, [](float x) { return sqrtf(x); }, w, g, state.arrays[K][at]...);
}

// One for each formula of the table.
template <typename F>
__global__ void update_kernel(const DeviceMath::Segment* segments, const Chunk* chunks,
                              const double2* norms, UpdateRule rule, State state) {
  const Chunk chunk = chunks[blockIdx.x];
  const DeviceMath::Segment segment = segments[chunk.segment];
  if (!segment.decays) rule.decay = 0;
  if constexpr (F::kTakesNorms) {
    const double2 norm = norms[chunk.segment];
    if (segment.decays) rule.lr = F::slice_rate(rule, norm.x, norm.y);
  }
  const uint64_t end = min(chunk.start + kChunk, segment.count);
  for (uint64_t i = chunk.start + threadIdx.x; i < end; i += kThreads) {
    float w = segment.parameter[i];
    update_element<F>(rule, w, segment.gradient[i], state, segment.first + i,
                      std::make_index_sequence<F::kArrays>());
    segment.parameter[i] = w;
  }
}

template <typename T>
std::shared_ptr<T> upload(const std::vector<T>& values) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, values.size() * sizeof(T) + 1), "allocate");
  std::shared_ptr<T> owner(static_cast<T*>(memory), cudaFree);
  check(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "copy");
  return owner;
}

struct CudaTable final : DeviceMath::Table {
  std::shared_ptr<DeviceMath::Segment> segments;
  std::shared_ptr<Chunk> chunks;
  std::shared_ptr<double2> norms;
  unsigned segment_count = 0;
  unsigned chunk_count = 0;
};

template <typename F>
void launch(const CudaTable& table, const UpdateRule& rule, const State& state) {
  if constexpr (F::kTakesNorms)
    norm_kernel<<<table.segment_count, kThreads>>>(table.segments.get(), table.norms.get());
  update_kernel<F><<<table.chunk_count, kThreads>>>(table.segments.get(), table.chunks.get(),
                                                    table.norms.get(), rule, state);
}

class CudaMath final : public DeviceMath {
 public:
  explicit CudaMath(int device) : device_(device) {}
  void take(float* to, const float* from, uint64_t count, bool adds, uint32_t* flaws) override {
    if (count == 0) return;
    here();
    const uint64_t blocks = (count + kChunk - 1) / kChunk * (kChunk / kThreads / 4);
    take_kernel<<<static_cast<unsigned>(min(blocks, uint64_t{1056})), kThreads>>>(to, from, count,
                                                                                  adds, flaws);
    check(cudaGetLastError(), "take a gradient");
  }
  void clear(void* data, uint64_t bytes) override {
    here();
    check(cudaMemsetAsync(data, 0, bytes, nullptr), "clear");
  }
  std::unique_ptr<Table> make_table(std::span<const Segment> all) override {
    here();
    auto table = std::make_unique<CudaTable>();
    std::vector<Chunk> chunks;
    for (size_t i = 0; i < all.size(); ++i) {
      for (uint64_t start = 0; start < all[i].count; start += kChunk)
        chunks.push_back({static_cast<uint32_t>(i), start});
    }
    table->segments = upload(std::vector<Segment>(all.begin(), all.end()));
    table->chunks = upload(chunks);
    table->norms = upload(std::vector<double2>(all.size()));
    table->segment_count = static_cast<unsigned>(all.size());
    table->chunk_count = static_cast<unsigned>(chunks.size());
    return table;
  }
  void update(const Table& any, const UpdateRule& rule, std::span<float* const> arrays) override {
    const auto& table = static_cast<const CudaTable&>(any);
    if (table.chunk_count == 0) return;
    here();
    State state = {};
    for (size_t i = 0; i < arrays.size() && i < kMostArrays; ++i) state.arrays[i] = arrays[i];
    for_each_optimizer([&]<typename F>(const OptimizerRow<F>&, OptimizerKind kind) {
      if (kind == rule.optimizer) launch<F>(table, rule, state);
    });
    check(cudaGetLastError(), "update");
  }
  void copy(void* to, const void* from, uint64_t bytes) override {
    here();
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copy");
  }
  std::shared_ptr<void> mark() override {
    here();
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
          "create event");
    std::shared_ptr<void> owner(event, [](void* one) { cudaEventDestroy(cudaEvent_t(one)); });
    check(cudaEventRecord(event, nullptr), "record event");
    return owner;
  }
  void wait(const std::shared_ptr<void>& mark) override {
    check(cudaEventSynchronize(cudaEvent_t(mark.get())), "wait");
  }

 private:
  void here() const { check(cudaSetDevice(device_), "set device"); }
  int device_;
};

}  // namespace
}  // namespace horon::optim

horon::optim::DeviceMath* horon_open_device_math_here(int device) {
  return new horon::optim::CudaMath(device);
}
