/* The C interface on device memory: streams, events, declared tensors, results. Two ranks that share a GPU, started by gpu_contract.sh. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <unistd.h>

#include "horon/c/horon.h"
#include "tests/c_api/shorthand.h"

enum { kCount = 1 << 20 };
#define CUDA(call) CHECK((call) == cudaSuccess)

static void CUDART_CB rest(void* nothing) {
  (void)nothing;
  usleep(100000);
}

static float* pinned;
static float* device;
static cudaStream_t stream;

/* Zeros now, and `value` in the stream after a rest: whoever does not wait for that sums up zeros. */
static void fill_later(float value) {
  for (int i = 0; i < kCount; ++i) pinned[i] = value;
  CUDA(cudaMemset(device, 0, kCount * sizeof(float)));
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaLaunchHostFunc(stream, rest, NULL));
  CUDA(cudaMemcpyAsync(device, pinned, kCount * sizeof(float), cudaMemcpyHostToDevice, stream));
}

static float last_of(const void* data, int count) {
  float value = 0;
  CUDA(cudaMemcpy(&value, (const float*)data + count - 1, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

static horon_buffer on_device(void* data, int count) {
  horon_buffer buffer = buffer_of(data, (uint64_t)count, HORON_F32);
  buffer.device = HORON_CUDA;
  return buffer;
}

static void waits_for_the_stream(const char* name) {
  horon_buffer buffer = on_device(device, kCount);
  buffer.stream = stream;
  fill_later(1);
  CHECK(horon_wait(NULL, horon_all_reduce(NULL, name, NULL, &buffer, NULL)) == 0);
  CHECK(last_of(device, kCount) == 2);

  cudaEvent_t ready = NULL;
  cudaEvent_t done = NULL;
  CUDA(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  buffer.stream = NULL;
  buffer.ready = ready;
  buffer.done = done;
  fill_later(3);
  CUDA(cudaEventRecord(ready, stream));
  CUDA(cudaLaunchHostFunc(stream, rest, NULL));
  CUDA(cudaLaunchHostFunc(stream, rest, NULL));
  CUDA(cudaEventRecord(done, stream)); /* far behind, until the operation records it */
  CHECK(horon_wait(NULL, horon_all_reduce(NULL, name, NULL, &buffer, NULL)) == 0);
  CUDA(cudaEventQuery(done));
  CHECK(last_of(device, kCount) == 6);
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaEventDestroy(ready));
  CUDA(cudaEventDestroy(done));
}

int main(void) {
  horon_session_options options = {sizeof options, HORON_VERSION, 1, 0, NULL};
  CHECK(horon_init_with(&options) == 0 && horon_size(NULL) == 2);
  const int rank = horon_rank(NULL);
  CUDA(cudaMallocHost((void**)&pinned, kCount * sizeof(float)));
  CUDA(cudaMalloc((void**)&device, kCount * sizeof(float)));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int step = 0; step < 3; ++step) {
    waits_for_the_stream("x");
    waits_for_the_stream("");
  }
  const horon_tensor tensor = {sizeof tensor, HORON_VERSION, "declared", 1000, HORON_F32, HORON_CUDA, 0, 0};
  void* view = NULL;
  CHECK(horon_declare(NULL, &tensor, 1, NULL, &view) == 0);
  horon_buffer buffer = on_device(view, 1000);
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 1000; ++i) pinned[i] = 1;
    CUDA(cudaMemcpy(view, pinned, 1000 * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(horon_wait(NULL, horon_all_reduce(NULL, "declared", NULL, &buffer, NULL)) == 0 && last_of(view, 1000) == 2);
  }
  const horon_handle handle = horon_all_gather(NULL, "gathered", &buffer, NULL, NULL);
  CHECK(horon_wait(NULL, handle) == 0);
  horon_made made = {sizeof made, HORON_VERSION, NULL, 0, 0, 0, NULL};
  CHECK(horon_result(NULL, handle, 0, &made) == 0 && made.count == 2000 && ((float*)made.data)[1999] == 2);
  CHECK(horon_release(NULL, handle) == 0);
  horon_buffer out = on_device(device, 1000); /* from one place to another */
  CHECK(horon_wait(NULL, horon_all_reduce(NULL, "apart", &buffer, &out, NULL)) == 0);
  CHECK(last_of(device, 1000) == 4 && last_of(view, 1000) == 2);
  CHECK(horon_shutdown() == 0);
  printf("rank %d: C on a GPU ok\n", rank);
  return 0;
}
