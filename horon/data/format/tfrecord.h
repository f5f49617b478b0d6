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

// TFRecord's mask of a CRC-32C.
uint32_t mask_crc(uint32_t crc);

enum class Compression { kNone, kGzip, kZlib };
// Detected from the file's first bytes and its length fields.
Compression compression_of(const file::ReadableFile& file);

// One damaged record.
struct RecordDamage {
  uint64_t offset = 0;  // of the record in the (uncompressed) file
  uint64_t index = 0;
  std::string reason;
  bool rest_is_lost = false;  // the positions of the following records are unknown
};

// Reads a file from beginning to end. A record with damaged bytes is reported and skipped; after a
// damaged length, or where the file is truncated, the rest of the file is lost. Memory grows with
// the actual data, up to 1 GB per record. One thread at a time.
class RecordReader {
 public:
  explicit RecordReader(std::unique_ptr<file::ReadableFile> file);
  ~RecordReader();
  // Reads the next valid record; false at the end. `record` is valid until the next call.
  bool next(std::span<const uint8_t>& record);
  uint64_t offset() const { return record_offset_; }  // of the last record
  uint64_t index() const { return index_; }
  const std::vector<RecordDamage>& damages() const { return damages_; }

 private:
  class Source;  // uncompressed bytes of a file
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

// The position of one record of an uncompressed file.
struct RecordPosition {
  uint64_t offset = 0;  // of its length field
  uint32_t bytes = 0;   // of its contents
};
struct RecordIndex {
  std::vector<RecordPosition> positions;
  std::optional<RecordDamage> lost;  // the damage after which records cannot be located
};
// Reads only the length fields, up to the end or a damaged length.
RecordIndex index_records(const file::ReadableFile& file);
// The same, from the sidecar FILE.index if it matches this file; otherwise computed, and saved
// there if the folder is writable and nothing is lost.
RecordIndex load_index(const std::string& path);
// Reads and checks one record; CorruptRecord.
std::span<const uint8_t> read_record(const file::ReadableFile& file, const RecordPosition& at,
                                     std::vector<uint8_t>& scratch);

// Writes a TFRecord file, which becomes visible with commit(). IoError. One thread at a time.
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
