#include "horon/data/format/inflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <exception>

#include "horon/data/dataset.h"

namespace horon {
namespace {
constexpr size_t kRead = 256U << 10;
constexpr int kEither = 15 + 32;  // gzip or zlib, as the header says
}  // namespace

struct Inflater::State {
  explicit State(const file::ReadableFile& from) : file(from) {
    if (inflateInit2(&stream, kEither) != Z_OK) throw IoError("inflate: no memory");
  }
  ~State() { inflateEnd(&stream); }
  const file::ReadableFile& file;
  z_stream stream = {};
  std::vector<std::byte> input = std::vector<std::byte>(kRead);
  uint64_t offset = 0;
  bool ended = false;
  std::exception_ptr damage;  // behind what was given out

  void more();
};

Inflater::Inflater(const file::ReadableFile& file) : state_(std::make_unique<State>(file)) {}
Inflater::~Inflater() = default;

// Some more bytes for stream.next_out, or the end. CorruptRecord.
void Inflater::State::more() {
  if (stream.avail_in == 0) {
    const size_t got = file.read_at(offset, input);
    if (got == 0)
      throw CorruptRecord(fmt::format("{} at offset {}", file.path(), offset),
                          "the compressed data is cut off");
    offset += got;
    stream.next_in = reinterpret_cast<Bytef*>(input.data());
    stream.avail_in = static_cast<uInt>(got);
  }
  const int result = inflate(&stream, Z_NO_FLUSH);
  if (result == Z_STREAM_END) {
    // A gzip file may have several parts, one after the other.
    const bool has_more = stream.avail_in > 0 || offset < file.size();
    ended = !has_more || inflateReset2(&stream, kEither) != Z_OK;
  } else if (result != Z_OK) {
    throw CorruptRecord(fmt::format("{} before offset {}", file.path(), offset),
                        fmt::format("the compressed data is damaged ({})",
                                    stream.msg != nullptr ? stream.msg : "no more is known"));
  }
}

size_t Inflater::read(std::span<uint8_t> out) {
  State& state = *state_;
  if (state.damage) std::rethrow_exception(state.damage);
  z_stream& stream = state.stream;
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), 1U << 30));
  const uInt wanted = stream.avail_out;
  try {
    while (stream.avail_out > 0 && !state.ended) state.more();
  } catch (const CorruptRecord&) {
    if (stream.avail_out == wanted) throw;
    state.damage = std::current_exception();
  }
  return wanted - stream.avail_out;
}

std::vector<uint8_t> read_inflated(const std::string& path, uint64_t limit) {
  const auto file = file::open(path);
  uint8_t start[2] = {};
  const bool packed = file->read_at(0, std::as_writable_bytes(std::span(start))) == 2 &&
                      start[0] == 0x1f && start[1] == 0x8b;
  std::vector<uint8_t> bytes;
  if (!packed) {
    if (file->size() > limit) throw CorruptRecord(path, fmt::format("more than {} bytes", limit));
    bytes.resize(file->size());
    bytes.resize(file->read_at(0, std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }
  Inflater inflater(*file);
  while (true) {
    const size_t before = bytes.size();
    bytes.resize(before + (4U << 20));
    const size_t got = inflater.read(std::span(bytes).subspan(before));
    bytes.resize(before + got);
    if (bytes.size() > limit) throw CorruptRecord(path, fmt::format("more than {} bytes", limit));
    if (got == 0) return bytes;
  }
}

struct Deflater::State {
  explicit State(bool gzip) {
    if (deflateInit2(&stream, 6, Z_DEFLATED, gzip ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw IoError("deflate: no memory");
  }
  ~State() { deflateEnd(&stream); }
  z_stream stream = {};
  std::string out;

  std::string_view run(std::string_view bytes, int flush) {
    out.clear();
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    do {
      const size_t before = out.size();
      out.resize(before + kRead);
      stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
      stream.avail_out = kRead;
      deflate(&stream, flush);
      out.resize(before + kRead - stream.avail_out);
    } while (stream.avail_out == 0);
    return out;
  }
};

Deflater::Deflater(bool gzip) : state_(std::make_unique<State>(gzip)) {}
Deflater::~Deflater() = default;
std::string_view Deflater::write(std::string_view bytes) { return state_->run(bytes, Z_NO_FLUSH); }
std::string_view Deflater::finish() { return state_->run({}, Z_FINISH); }

}  // namespace horon
