#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Bytes on the wire: numbers are little-endian, texts carry their length, nothing is ever executed.
// What a peer sends is read with bounds; anything else throws Error (exit code 10).
namespace horon {

class Packer {
 public:
  Packer& u8(uint8_t value);
  Packer& u32(uint32_t value);
  Packer& u64(uint64_t value);
  Packer& text(std::string_view value);
  Packer& texts(const std::vector<std::string>& values);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  std::string text();
  std::vector<std::string> texts();
  bool at_end() const { return bytes_.empty(); }
  // Throws unless all was read.
  void end() const;

 private:
  std::string_view take(size_t count);
  std::string_view bytes_;
};

// A frame is its length (4 bytes) and its bytes.
std::string make_frame(std::string_view payload);

// Cuts a stream into frames. Throws before anything is kept when a frame is longer than the limit.
class FrameReader {
 public:
  explicit FrameReader(size_t limit) : limit_(limit) {}
  void feed(std::string_view bytes);
  std::optional<std::string> next();

 private:
  size_t limit_;
  std::string buffer_;
  size_t used_ = 0;
};

}  // namespace horon
