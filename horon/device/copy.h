#pragma once

#include <span>

#include "horon/device/buffer.h"

// Copies over many host buffers at once, for callers whose tensors do not live in a bucket.
namespace horon {

// One after the other into `bucket`, which has the same type and at least the total count.
void pack(std::span<const BufferView> parts, BufferView bucket);
void unpack(BufferView bucket, std::span<const BufferView> parts);

// data[i] *= factor, computed in f32 (f64 for f64); floats only.
void scale(BufferView data, double factor);

// Converts between f32, f16 and bf16, round to nearest even. Same count.
void cast(BufferView from, BufferView to);

}  // namespace horon
