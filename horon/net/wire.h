#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Serialisation: numbers are little-endian, strings are prefixed by their length. Reading checks
// all bounds; invalid data throws Error (exit code 10). Received data is never executed.
namespace horon {

// Serialises fields one after the other.
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

// Reads the fields in the same order; the text must outlive it.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  std::string text();
  std::vector<std::string> texts();
  bool at_end() const { return bytes_.empty(); }
  // Throws unless everything was read.
  void end() const;

 private:
  std::string_view take(size_t count);
  std::string_view bytes_;
};

// A frame is its length (4 bytes) followed by its bytes.
std::string make_frame(std::string_view payload);

// Splits a stream into frames. If a frame is longer than the limit, throws before storing it.
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
