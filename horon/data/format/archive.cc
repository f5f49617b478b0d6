#include "horon/data/format/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "horon/base/text.h"
#include "horon/data/dataset.h"
#include "horon/data/format/inflate.h"
#include "horon/file/file.h"

namespace horon {
namespace {

constexpr size_t kBlock = 512;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;
using Header = std::array<uint8_t, kBlock>;

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(file::open(path)) {
    std::array<std::byte, 2> start = {};
    const bool packed =
        file_->read_at(0, start) == 2 && start[0] == std::byte{0x1f} && start[1] == std::byte{0x8b};
    if (packed) inflater_ = std::make_unique<Inflater>(*file_);
  }
  // The whole content, or CorruptRecord.
  void read(std::span<uint8_t> out) {
    if (read_some(out) != out.size())
      throw CorruptRecord(fmt::format("{} at byte {}", file_->path(), offset_),
                          "the archive is cut off");
  }
  size_t read_some(std::span<uint8_t> out) {
    const size_t got =
        inflater_ ? inflater_->read(out) : file_->read_at(offset_, std::as_writable_bytes(out));
    offset_ += got;
    return got;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw CorruptRecord(file_->path(), what);
  }

 private:
  std::unique_ptr<file::ReadableFile> file_;
  std::unique_ptr<Inflater> inflater_;
  uint64_t offset_ = 0;
};

std::string text_at(const Header& header, size_t at, size_t most) {
  const auto* from = reinterpret_cast<const char*>(header.data() + at);
  return {from, strnlen(from, most)};
}

uint64_t octal_at(const Reader& reader, const Header& header, size_t at, size_t most) {
  uint64_t value = 0;
  for (const char digit : text_at(header, at, most)) {
    if (digit == ' ') continue;
    if (digit < '0' || digit > '7') reader.fail("no tar archive: an invalid number");
    value = value * 8 + static_cast<uint64_t>(digit - '0');
    if (value > kMostBytes) reader.fail("an invalid size");
  }
  return value;
}

void check_sum(const Reader& reader, const Header& header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : header[i];
  if (sum != octal_at(reader, header, 148, 8)) reader.fail("no tar archive, or a damaged one");
}

// The name as a path below the folder; refuses names that lead outside.
std::string safe_name(const Reader& reader, const std::string& name) {
  std::string clean;
  const bool absolute = name.starts_with('/');
  for (const std::string& part : split(name, '/')) {
    if (absolute || part == ".." || part.find('\\') != std::string::npos)
      reader.fail(fmt::format("'{}' would be written outside of the folder", name));
    if (part.empty() || part == ".") continue;
    clean += (clean.empty() ? "" : "/") + part;
  }
  return clean;
}

// "27 path=some/long/name\n" records; only the path matters.
std::string path_of_pax(const std::string& text) {
  for (const std::string& line : split(text, '\n')) {
    const size_t at = line.find(" path=");
    if (at != std::string::npos) return line.substr(at + 6);
  }
  return "";
}

void write_file(Reader& reader, uint64_t size, const std::string& path) {
  const auto out = file::create(path);
  std::vector<uint8_t> buffer(256U << 10);
  for (uint64_t left = size; left > 0;) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(left, buffer.size()));
    reader.read(piece);
    out->append(std::as_bytes(piece));
    left -= piece.size();
  }
  out->commit();
}

std::string read_text(Reader& reader, uint64_t size) {
  if (size > 1U << 20) reader.fail("a name of more than a megabyte");
  std::string text(size, '\0');
  reader.read({reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return text;
}

}  // namespace

std::vector<std::string> unpack_archive(const std::string& path, const std::string& folder) {
  Reader reader(path);
  std::vector<std::string> files;
  std::string long_name;
  Header header = {};
  while (reader.read_some(header) == kBlock) {
    if (std::all_of(header.begin(), header.end(), [](uint8_t byte) { return byte == 0; }))
      return files;
    check_sum(reader, header);
    const uint64_t size = octal_at(reader, header, 124, 12);
    const std::string prefix = text_at(header, 345, 155);
    std::string name = text_at(header, 0, 100);
    const bool ustar = text_at(header, 257, 5) == "ustar";
    if (ustar && !prefix.empty()) name = prefix + "/" + name;
    if (!long_name.empty()) name = std::exchange(long_name, "");
    const char kind = static_cast<char>(header[156]);
    if (kind == 'L' || kind == 'x') {
      const std::string text = read_text(reader, size);
      long_name = kind == 'x' ? path_of_pax(text) : std::string(text.c_str());
    } else if (kind == 'g') {
      read_text(reader, size);
    } else if (kind == '5') {
      file::make_folder(file::join_path(folder, safe_name(reader, name)));
    } else if (kind == '0' || kind == '\0') {
      const std::string target = file::join_path(folder, safe_name(reader, name));
      write_file(reader, size, target);
      files.push_back(target);
    } else {
      reader.fail(fmt::format("'{}' is a link or a device: only files are unpacked", name));
    }
    std::array<uint8_t, kBlock> rest = {};
    if (size % kBlock != 0) reader.read(std::span(rest).first(kBlock - size % kBlock));
  }
  reader.fail("the archive is cut off");
}

}  // namespace horon
