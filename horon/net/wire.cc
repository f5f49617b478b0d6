#include "horon/net/wire.h"

#include <fmt/format.h>

#include <utility>

#include "horon/base/error.h"

namespace horon {
namespace {

constexpr size_t kLength = sizeof(uint32_t);

template <typename T>
void append(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

template <typename T>
T number(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return static_cast<T>(value);
}

}  // namespace

Packer& Packer::u8(uint8_t value) {
  append(bytes_, value);
  return *this;
}
Packer& Packer::u32(uint32_t value) {
  append(bytes_, value);
  return *this;
}
Packer& Packer::u64(uint64_t value) {
  append(bytes_, value);
  return *this;
}
Packer& Packer::text(std::string_view value) {
  u32(static_cast<uint32_t>(value.size()));
  bytes_.append(value);
  return *this;
}
Packer& Packer::texts(const std::vector<std::string>& values) {
  u32(static_cast<uint32_t>(values.size()));
  for (const std::string& value : values) text(value);
  return *this;
}

std::string_view Unpacker::take(size_t count) {
  if (count > bytes_.size()) {
    throw Error(fmt::format("wire: message ends {} bytes early", count - bytes_.size()),
                ExitCode::kPeer);
  }
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

uint8_t Unpacker::u8() { return number<uint8_t>(take(1)); }
uint32_t Unpacker::u32() { return number<uint32_t>(take(4)); }
uint64_t Unpacker::u64() { return number<uint64_t>(take(8)); }
std::string Unpacker::text() {
  const uint32_t size = u32();
  return std::string(take(size));
}
std::vector<std::string> Unpacker::texts() {
  const uint32_t count = u32();
  if (count > bytes_.size() / kLength) {  // each has a length of its own
    throw Error(fmt::format("wire: {} texts cannot be in {} bytes", count, bytes_.size()),
                ExitCode::kPeer);
  }
  std::vector<std::string> values;
  values.reserve(count);
  for (uint32_t i = 0; i < count; ++i) values.push_back(text());
  return values;
}
void Unpacker::end() const {
  if (!bytes_.empty()) {
    throw Error(fmt::format("wire: {} bytes after the message", bytes_.size()), ExitCode::kPeer);
  }
}

std::string make_frame(std::string_view payload) {
  std::string frame;
  frame.reserve(payload.size() + kLength);
  append(frame, static_cast<uint32_t>(payload.size()));
  frame.append(payload);
  return frame;
}

void FrameReader::feed(std::string_view bytes) {
  if (used_ > 0) buffer_.erase(0, std::exchange(used_, 0));
  buffer_.append(bytes);
  // The first length is enough: next() looks at those behind it before it waits for more.
  if (buffer_.size() >= kLength && number<uint32_t>(buffer_) > limit_) {
    throw Error(
        fmt::format("wire: a frame of {} bytes, limit {}", number<uint32_t>(buffer_), limit_),
        ExitCode::kPeer);
  }
}

std::optional<std::string> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(used_);
  if (rest.size() < kLength) return std::nullopt;
  const auto length = number<uint32_t>(rest);
  if (length > limit_) {
    throw Error(fmt::format("wire: a frame of {} bytes, limit {}", length, limit_),
                ExitCode::kPeer);
  }
  if (rest.size() < kLength + length) return std::nullopt;
  used_ += kLength + length;
  return std::string(rest.substr(kLength, length));
}

}  // namespace horon
