#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horon/file/file.h"

// TFRecord files: length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes.
namespace horon {

uint32_t mask_crc(uint32_t crc);

enum class Compression { kNone, kGzip, kZlib };
// By the file's first bytes and its length fields.
Compression compression_of(const file::ReadableFile& file);

struct RecordDamage {
  uint64_t offset = 0;  // of the record in the (uncompressed) file
  uint64_t index = 0;
  std::string reason;
  bool rest_is_lost = false;  // where the records behind it begin is not known
};

// Reads a file from its beginning to its end. A record whose bytes are damaged is reported and
// passed over; after a damaged length, or where the file is cut, the rest of the file is lost.
// Memory grows with what is really there, up to 1 GB a record. One thread at a time.
class RecordReader {
 public:
  explicit RecordReader(std::unique_ptr<file::ReadableFile> file);
  ~RecordReader();
  // The next good record; empty optional-like: false at the end. `record` is valid until the next
  // call.
  bool next(std::span<const uint8_t>& record);
  uint64_t offset() const { return record_offset_; }  // of the record that was read last
  uint64_t index() const { return index_; }
  const std::vector<RecordDamage>& damages() const { return damages_; }

 private:
  class Source;  // plain bytes of a file that may be compressed
  bool fill(size_t bytes);
  bool give_up(const std::string& reason);

  std::unique_ptr<Source> source_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;  // unread bytes of the buffer
  size_t end_ = 0;
  uint64_t buffer_offset_ = 0;  // of begin_ in the file
  uint64_t record_offset_ = 0;
  uint64_t next_index_ = 0;
  uint64_t index_ = 0;
  bool ended_ = false;
  std::vector<RecordDamage> damages_;
};

// Where the records of an uncompressed file begin, up to its end or to a length that is damaged.
struct RecordPlace {
  uint64_t offset = 0;  // of its length field
  uint32_t bytes = 0;   // of its contents
};
struct RecordIndex {
  std::vector<RecordPlace> places;
  std::optional<RecordDamage> lost;  // what follows them cannot be found
};
// Reads lengths only.
RecordIndex index_records(const file::ReadableFile& file);
// The same from a sidecar FILE.index if it belongs to this file, else made, and kept there if the
// folder lets us and nothing is lost.
RecordIndex load_index(const std::string& path);
// Reads and checks one record; CorruptRecord.
std::span<const uint8_t> read_record(const file::ReadableFile& file, const RecordPlace& place,
                                     std::vector<uint8_t>& scratch);

class RecordWriter {
 public:
  explicit RecordWriter(const std::string& path, Compression compression = Compression::kNone);
  ~RecordWriter();
  void write(std::string_view record);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
