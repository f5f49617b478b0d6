#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace horon::file {

struct FileInfo {
  std::string path;  // as it can be opened
  uint64_t bytes = 0;
  bool is_folder = false;
  bool is_link = false;  // what it points to is described; removing it removes the link

  int64_t modified_ns = 0;     // since 1970; 0: not known
  bool leads_nowhere = false;  // a link to something that is not there, or not to be reached
  int mode = -1;               // permissions (0644); -1: the storage knows none
};

// A file that is read. Thread-safe. Errors are IoError with the path.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  virtual uint64_t size() const = 0;
  // Bytes read: fewer than asked for only at the end of the file.
  virtual size_t read_at(uint64_t offset, std::span<std::byte> out) const = 0;
  // From `offset` to the end, in pieces; for places where one long read beats many short ones.
  virtual void read_all(uint64_t offset,
                        const std::function<void(std::span<const std::byte>)>& piece) const;
};

// A file that is being written. Others see it when it is committed, whole; without that they never
// do, and what was there before stays. One thread at a time.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  virtual void commit() = 0;
  // Where the bytes are until then; empty: nowhere that can be opened.
  virtual std::string temporary() const { return ""; }

  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
};

struct CreateOptions {
  // What was written stays beside the target under its name and kPartSuffix if it is never
  // committed; the next one continues behind as much of it as agrees with the checksums that were
  // taken when it was written.
  bool resumes = false;
  std::string identity = {};  // of what is written: only a beginning of the same is continued
  int mode = -1;              // permissions once it is committed; -1: as usual for new files
};

// One kind of storage. Paths are whole (with their scheme, if they have one). Thread-safe. IoError
// names the path; UsageError for what this storage cannot do at all.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  // Makes the folders above it. Where it goes on with something unfinished, `already` is its size.
  virtual std::unique_ptr<WritableFile> create(const std::string& path,
                                               const CreateOptions& options, uint64_t& already) = 0;
  // True if there was no such file and now there is, with these bytes, whole. Of several that try
  // at the same time one gets true.
  virtual bool write_new(const std::string& path, std::string_view bytes) = 0;
  // At the end of the file, which is made if it is not there. Not atomic: for logs.
  virtual void append(const std::string& path, std::span<const std::byte> bytes) = 0;
  // One level, sorted by name, without files that are being written; links that lead nowhere are
  // among them.
  virtual std::vector<FileInfo> list(const std::string& folder) = 0;
  virtual std::optional<FileInfo> stat(const std::string& path) = 0;
  virtual void make_folder(const std::string& path) = 0;  // and those above it
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // A file, a link or an empty folder.
  virtual void remove(const std::string& path) = 0;
  // With all that is in it.
  virtual void remove_tree(const std::string& path);
  // What writers that died have left in a folder (not below it). For when nobody else writes there.
  virtual void remove_unfinished(const std::string&) {}
};

// The storage of a path: "mem://...", "http://...", "https://...", "file://..." or a plain path.
// UsageError for another scheme.
FileSystem& file_system_of(const std::string& path);

std::unique_ptr<FileSystem> make_local_file_system();
std::unique_ptr<FileSystem> make_memory_file_system();
std::unique_ptr<FileSystem> make_http_file_system();  // reading only

constexpr std::string_view kPartSuffix = ".horon-part";  // of files that are being written
constexpr std::string_view kSumsSuffix = ".horon-sums";  // of their checksums

}  // namespace horon::file
