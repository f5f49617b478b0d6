#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/data/dataset.h"

// numpy's .npy files of integers: header, then the array in C order.
namespace horon {

// The header of a .npy file.
struct NpyHeader {
  std::string dtype;  // "u1", "i8", ...
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // of the contents in the file
  uint64_t bytes = 0;   // of the contents
};
// `start`: at least kNpyStart bytes of the file, or all of it, which is `file_bytes` long.
// CorruptRecord naming `path` for anything else, or a file whose size does not match its header.
constexpr uint64_t kNpyStart = 4096 + 12;
NpyHeader parse_npy_header(std::span<const uint8_t> start, uint64_t file_bytes,
                           const std::string& path);

// An array in memory that the caller owns; integer() reads one element in any integer type.
struct NpyArray {
  std::string dtype;  // "u1", "i8", ...
  std::vector<uint64_t> shape;
  std::span<const uint8_t> contents;
  int64_t integer(uint64_t index) const;
};

NpyArray parse_npy(std::span<const uint8_t> file, const std::string& path);
// The header before the contents; contents begin at a multiple of 64.
std::string npy_header(const std::string& dtype, std::span<const uint64_t> shape);

// SPLIT_images.npy and SPLIT_labels.npy as a data set. Throws what open_dataset throws.
std::shared_ptr<Dataset> open_npy(const DatasetRequest& request);

}  // namespace horon
