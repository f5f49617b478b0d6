#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/file/file.h"

namespace horon {

// Decompresses a gzip or zlib file from beginning to end. CorruptRecord for other or truncated
// data. One thread at a time.
class Inflater {
 public:
  explicit Inflater(const file::ReadableFile& file);
  ~Inflater();
  // Returns fewer bytes than requested at the end, or before damaged data: then the next call
  // throws. 0: the end.
  size_t read(std::span<uint8_t> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The contents of a file that may be gzipped; CorruptRecord if they exceed `limit`.
std::vector<uint8_t> read_inflated(const std::string& path, uint64_t limit);

// Compresses a stream. One thread at a time.
class Deflater {
 public:
  explicit Deflater(bool gzip);  // else zlib
  ~Deflater();
  // Compressed bytes to append to the file; valid until the next call.
  std::string_view write(std::string_view bytes);
  std::string_view finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
