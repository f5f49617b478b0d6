#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// numpy's .npy files of whole numbers: header, then the array in C order.
namespace horon {

struct NpyHeader {
  std::string dtype;  // "u1", "i8", ...
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // of the contents in the file
  uint64_t bytes = 0;   // of the contents
};
// `start`: at least kNpyStart bytes of the file, or all of it, which is `file_bytes` long.
// CorruptRecord naming `path` for anything else, or a file of another size than it says.
constexpr uint64_t kNpyStart = 4096 + 12;
NpyHeader parse_npy_header(std::span<const uint8_t> start, uint64_t file_bytes,
                           const std::string& path);

struct NpyArray {
  std::string dtype;  // "u1", "i8", ...
  std::vector<uint64_t> shape;
  std::span<const uint8_t> contents;
  int64_t integer(uint64_t index) const;
};

NpyArray parse_npy(std::span<const uint8_t> file, const std::string& path);
// What stands before the contents; contents begin at a multiple of 64.
std::string npy_header(const std::string& dtype, std::span<const uint64_t> shape);

}  // namespace horon
