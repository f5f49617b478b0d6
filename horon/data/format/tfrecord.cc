#include "horon/data/format/tfrecord.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/data/dataset.h"
#include "horon/data/format/inflate.h"

namespace horon {
namespace {

constexpr size_t kHeader = 12;  // length and its CRC
constexpr size_t kFooter = 4;
constexpr size_t kMostDamages = 10'000;
constexpr size_t kRead = 1U << 20;  // larger reads leave the second-level cache

uint64_t load64(const uint8_t* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, 8);
  return value;
}
uint32_t load32(const uint8_t* at) {
  uint32_t value = 0;
  std::memcpy(&value, at, 4);
  return value;
}

bool is_good_header(const uint8_t* header) {
  return mask_crc(crc32c(header, 8)) == load32(header + 8);
}

std::span<std::byte> as_bytes(uint8_t* at, size_t count) {
  return {reinterpret_cast<std::byte*>(at), count};
}

}  // namespace

uint32_t mask_crc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

Compression compression_of(const file::ReadableFile& file) {
  uint8_t start[kHeader] = {};
  const size_t got = file.read_at(0, as_bytes(start, kHeader));
  if (got == kHeader && is_good_header(start)) return Compression::kNone;
  if (got >= 2 && start[0] == 0x1f && start[1] == 0x8b) return Compression::kGzip;
  // CM 8, a window of at most 32 KB, and the two bytes divide by 31.
  if (got >= 2 && (start[0] & 0x8f) == 0x08 && (start[0] * 256 + start[1]) % 31 == 0)
    return Compression::kZlib;
  return Compression::kNone;
}

// --- reading in order

class RecordReader::Source {
 public:
  explicit Source(std::unique_ptr<file::ReadableFile> file) : file_(std::move(file)) {
    if (compression_of(*file_) != Compression::kNone)
      inflater_ = std::make_unique<Inflater>(*file_);
  }
  size_t read(uint8_t* to, size_t count) {
    if (inflater_) return inflater_->read({to, count});
    const size_t got = file_->read_at(offset_, as_bytes(to, count));
    offset_ += got;
    return got;
  }
  // No record can be longer than this.
  uint64_t limit() const {
    const uint64_t most = inflater_ ? file_->size() * 1100 + 1024 : file_->size();
    return std::min<uint64_t>(most, 1U << 30);
  }
  const std::string& path() const { return file_->path(); }

 private:
  std::unique_ptr<file::ReadableFile> file_;
  std::unique_ptr<Inflater> inflater_;
  uint64_t offset_ = 0;
};

RecordReader::RecordReader(std::unique_ptr<file::ReadableFile> file)
    : source_(std::make_unique<Source>(std::move(file))), buffer_(kRead) {}
RecordReader::~RecordReader() = default;

// At least `bytes` unread bytes in the buffer; false if the file has fewer.
bool RecordReader::fill(size_t bytes) {
  if (end_ - begin_ >= bytes) return true;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  // The length may be wrong: memory grows only with the bytes read.
  while (end_ < bytes) {
    if (buffer_.size() - end_ < kRead / 2) buffer_.resize(buffer_.size() + kRead);
    const size_t got = source_->read(buffer_.data() + end_, std::min(buffer_.size() - end_, kRead));
    if (got == 0) return false;
    end_ += got;
  }
  return true;
}

bool RecordReader::give_up(const std::string& reason) {
  damages_.push_back(
      {buffer_offset_, next_index_, reason + "; the rest of the file is lost", true});
  ended_ = true;
  return false;
}

bool RecordReader::next(std::span<const uint8_t>& record) {
  while (!ended_) {
    if (!fill(kHeader)) {
      ended_ = true;
      return end_ == begin_ ? false : give_up(fmt::format("{} bytes at the end", end_ - begin_));
    }
    const uint8_t* at = buffer_.data() + begin_;
    if (!is_good_header(at)) return give_up("the checksum of the length is wrong");
    const uint64_t length = load64(at);
    if (length > source_->limit())
      return give_up(fmt::format("a length of {} in a file of {}", length, source_->limit()));
    if (!fill(kHeader + length + kFooter)) return give_up("cut off in the middle of a record");
    at = buffer_.data() + begin_;
    const bool good = mask_crc(crc32c(at + kHeader, length)) == load32(at + kHeader + length);
    record_offset_ = buffer_offset_;
    index_ = next_index_++;
    begin_ += kHeader + length + kFooter;
    buffer_offset_ += kHeader + length + kFooter;
    if (good) {
      record = {at + kHeader, length};
      return true;
    }
    damages_.push_back({record_offset_, index_, "the checksum of the contents is wrong"});
    if (damages_.size() >= kMostDamages) return give_up("too many damaged records");
  }
  return false;
}

// --- reading by position

RecordIndex index_records(const file::ReadableFile& file) {
  RecordIndex index;
  uint8_t header[kHeader];
  for (uint64_t at = 0; at < file.size();) {
    const auto lose = [&](const std::string& reason) {
      index.lost = {at, index.positions.size(), reason + "; the rest of the file is lost", true};
      return index;
    };
    if (file.read_at(at, as_bytes(header, kHeader)) < kHeader)
      return lose("cut off in the middle of a record");
    if (!is_good_header(header)) return lose("the checksum of the length is wrong");
    const uint64_t length = load64(header);
    if (length > file.size() - at - kHeader || length + kFooter > file.size() - at - kHeader ||
        length > UINT32_MAX)
      return lose("cut off in the middle of a record");
    index.positions.push_back({at, static_cast<uint32_t>(length)});
    at += kHeader + length + kFooter;
  }
  return index;
}

namespace {

constexpr uint64_t kIndexMagic = 0x3158444e49524f48ULL;  // "HORINDX1"

std::string sidecar_of(const std::string& path) { return path + ".index"; }

// Magic, size and time of the file, count, lengths, CRC of all before it.
std::string pack_index(const file::FileInfo& info, const std::vector<RecordPosition>& positions) {
  std::vector<uint64_t> head = {kIndexMagic, info.bytes, static_cast<uint64_t>(info.modified_ns),
                                positions.size()};
  std::string bytes(reinterpret_cast<const char*>(head.data()), head.size() * 8);
  for (const RecordPosition& at : positions)
    bytes.append(reinterpret_cast<const char*>(&at.bytes), 4);
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return bytes.append(reinterpret_cast<const char*>(&crc), 4);
}

bool unpack_index(const std::string& bytes, const file::FileInfo& info,
                  std::vector<RecordPosition>& positions) {
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  if (bytes.size() < 36 || load64(at) != kIndexMagic || load64(at + 8) != info.bytes ||
      load64(at + 16) != static_cast<uint64_t>(info.modified_ns))
    return false;
  const uint64_t count = load64(at + 24);
  if (count > bytes.size() || bytes.size() != 36 + count * 4) return false;
  if (crc32c(at, bytes.size() - 4) != load32(at + bytes.size() - 4)) return false;
  uint64_t offset = 0;
  for (uint64_t i = 0; i < count; ++i) {
    positions.push_back({offset, load32(at + 32 + 4 * i)});
    offset += kHeader + positions.back().bytes + kFooter;
  }
  return offset == info.bytes;
}

}  // namespace

RecordIndex load_index(const std::string& path) {
  const auto info = file::stat(path);
  if (!info) throw IoError(fmt::format("open {}: No such file or directory", path));
  RecordIndex index;
  try {
    if (unpack_index(file::read(sidecar_of(path)), *info, index.positions)) return index;
  } catch (const Error&) {  // not there
  }
  index = index_records(*file::open(path));
  if (index.lost) return index;
  try {
    file::write(sidecar_of(path), pack_index(*info, index.positions));
  } catch (const Error&) {  // a folder that we may not write to: made again next time
  }
  return index;
}

std::span<const uint8_t> read_record(const file::ReadableFile& file, const RecordPosition& at,
                                     std::vector<uint8_t>& scratch) {
  scratch.resize(at.bytes + kFooter);
  const auto where = [&] { return fmt::format("{}, record at offset {}", file.path(), at.offset); };
  if (file.read_at(at.offset + kHeader, as_bytes(scratch.data(), scratch.size())) < scratch.size())
    throw CorruptRecord(where(), "cut off in the middle of a record");
  if (mask_crc(crc32c(scratch.data(), at.bytes)) != load32(scratch.data() + at.bytes))
    throw CorruptRecord(where(), "the checksum of the contents is wrong");
  return {scratch.data(), at.bytes};
}

// --- writing

struct RecordWriter::State {
  std::unique_ptr<file::WritableFile> file;
  std::unique_ptr<Deflater> deflater;  // null: as it is
  std::string buffer;

  void put(bool all) {
    if (!all && buffer.size() < kRead) return;
    if (deflater) {
      file->append(deflater->write(buffer));
    } else {
      file->append(buffer);
    }
    buffer.clear();
  }
};

RecordWriter::RecordWriter(const std::string& path, Compression compression)
    : state_(std::make_unique<State>()) {
  state_->file = file::create(path);
  if (compression != Compression::kNone)
    state_->deflater = std::make_unique<Deflater>(compression == Compression::kGzip);
}
RecordWriter::~RecordWriter() = default;

void RecordWriter::write(std::string_view record) {
  const uint64_t length = record.size();
  const uint32_t length_crc = mask_crc(crc32c(&length, 8));
  const uint32_t crc = mask_crc(crc32c(record.data(), record.size()));
  std::string& out = state_->buffer;
  out.append(reinterpret_cast<const char*>(&length), 8);
  out.append(reinterpret_cast<const char*>(&length_crc), 4);
  out.append(record);
  out.append(reinterpret_cast<const char*>(&crc), 4);
  state_->put(false);
}

void RecordWriter::commit() {
  state_->put(true);
  if (state_->deflater) state_->file->append(state_->deflater->finish());
  state_->file->commit();
}

}  // namespace horon
