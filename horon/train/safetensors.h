#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// Safetensors files: a JSON header with names, types, shapes and offsets, followed by the bytes.
// Equal tensors give equal files: names are sorted and there are no other contents. Pure functions.
namespace horon::train {

struct NamedTensor {
  std::string dtype = "F32";  // in the format's spelling: F32, I64, U8, ...
  std::vector<uint64_t> shape;
  std::string bytes;  // row-major, little-endian
};
using TensorMap = std::map<std::string, NamedTensor>;

std::string pack_safetensors(const TensorMap& tensors);
// Error (exit code 13) that names `path` for anything damaged or not allowed.
TensorMap unpack_safetensors(const std::string& file, const std::string& path);

}  // namespace horon::train
