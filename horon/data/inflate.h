#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/file/file.h"

namespace horon {

// The plain bytes of a gzip or zlib file, from its beginning to its end. CorruptRecord for bytes
// that are neither, or are cut. One thread at a time.
class Inflater {
 public:
  explicit Inflater(const file::ReadableFile& file);
  ~Inflater();
  // Fewer than asked for at the end, or before what is damaged: then the next call throws. 0: the
  // end.
  size_t read(std::span<uint8_t> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The whole of a file that may be gzipped; CorruptRecord if that is more than `limit`.
std::vector<uint8_t> read_inflated(const std::string& path, uint64_t limit);

class Deflater {
 public:
  explicit Deflater(bool gzip);  // else zlib
  ~Deflater();
  // What is ready for the file; valid until the next call.
  std::string_view write(std::string_view bytes);
  std::string_view finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
