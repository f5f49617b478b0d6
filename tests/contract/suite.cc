#include "tests/contract/suite.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "tests/support/reference.h"

namespace horon::contract {

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

std::vector<std::string> run(const std::vector<Check>& checks, Context& context) {
  std::vector<std::string> failures;
  for (const Check& check : checks) {
    try {
      check.body(context);
      context.comm.barrier({.name = "after " + check.name});
    } catch (const std::exception& error) {
      failures.push_back(fmt::format("{}: {}", check.name, error.what()));
      return failures;  // the ranks may be out of step: what follows would prove nothing
    }
  }
  return failures;
}

TestBuffer::TestBuffer(Context& context, uint64_t count, DType dtype, bool heap)
    : context_(context) {
  if (context.device) {
    memory_ = context.device->allocate(count, dtype, 0);
  } else {
    memory_ = heap ? context.comm.allocate(count, dtype) : OwnedBuffer::host(count, dtype);
  }
}

OwnedBuffer copy_of(const Context& context, const BufferView& view) {
  OwnedBuffer copy = OwnedBuffer::host(view.count, view.dtype);
  if (context.device) {
    const auto stream = context.device->make_stream(0);
    stream->copy(copy.view().data, view.data, view.bytes());
    stream->synchronize();
  } else if (view.count != 0) {
    std::memcpy(copy.view().data, view.data, view.bytes());
  }
  return copy;
}

void copy_to(const Context& context, const BufferView& view, const BufferView& host) {
  if (host.count == 0) return;
  if (context.device) {
    const auto stream = context.device->make_stream(0);
    stream->copy(view.data, host.data, host.bytes());
    stream->synchronize();
  } else {
    std::memcpy(view.data, host.data, host.bytes());
  }
}

OwnedBuffer input_of(int rank, uint64_t count, DType dtype, uint64_t seed) {
  OwnedBuffer buffer = OwnedBuffer::host(count, dtype);
  testing_support::fill_random(buffer.view(), seed * 1000 + static_cast<uint64_t>(rank));
  return buffer;
}

}  // namespace horon::contract
