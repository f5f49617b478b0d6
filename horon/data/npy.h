#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// numpy's .npy files of whole numbers: header, then the array in C order.
namespace horon {

struct NpyArray {
  std::string dtype;  // "u1", "i8", ...
  std::vector<uint64_t> shape;
  std::span<const uint8_t> contents;
  int64_t integer(uint64_t index) const;
};

// CorruptRecord naming `path` for anything else.
NpyArray parse_npy(std::span<const uint8_t> file, const std::string& path);
// What stands before the contents; contents begin at a multiple of 64.
std::string npy_header(const std::string& dtype, std::span<const uint64_t> shape);

}  // namespace horon
