#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// Safetensors files: a JSON header with names, types, shapes and places, then the bytes. Equal
// tensors give equal files: names are sorted, nothing else is in them.
namespace horon::train {

struct NamedTensor {
  std::string dtype = "F32";  // as the format calls it: F32, I64, U8, ...
  std::vector<uint64_t> shape;
  std::string bytes;  // row by row, little-endian
};
using TensorMap = std::map<std::string, NamedTensor>;

std::string pack_safetensors(const TensorMap& tensors);
// Error (exit code 13) naming `path` for anything that is damaged or not allowed.
TensorMap unpack_safetensors(const std::string& file, const std::string& path);

}  // namespace horon::train
