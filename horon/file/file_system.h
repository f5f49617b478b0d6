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

// A file or folder in a listing.
struct FileInfo {
  std::string path;  // can be passed to open()
  uint64_t bytes = 0;
  bool is_folder = false;
  bool is_link = false;  // the other fields describe its target; removing it removes the link

  int64_t modified_ns = 0;     // since 1970; 0: unknown
  bool leads_nowhere = false;  // a dangling link, or one whose target is inaccessible
  int mode = -1;               // permissions (0644); -1: the storage has none
};

// A file opened for reading. Thread-safe. Errors are IoError with the path.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  virtual uint64_t size() const = 0;
  // Returns the number of bytes read: less than out.size() only at the end of the file.
  virtual size_t read_at(uint64_t offset, std::span<std::byte> out) const = 0;
  // Reads from `offset` to the end, in pieces; for storages where one long read is faster than many
  // short ones.
  virtual void read_all(uint64_t offset,
                        const std::function<void(std::span<const std::byte>)>& piece) const;
};

// A file opened for writing. It becomes visible, complete, on commit(); without commit() an earlier
// file stays unchanged. One thread at a time.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  virtual void commit() = 0;
  // The path of the uncommitted bytes; empty if they cannot be opened.
  virtual std::string temporary() const { return ""; }

  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
};

// How a file is created.
struct CreateOptions {
  // Keep uncommitted bytes beside the target, with kPartSuffix; the next attempt continues after
  // the part that matches the checksums taken when it was written.
  bool resumes = false;
  std::string identity = {};  // of the source: only data of the same source is continued
  int mode = -1;              // permissions after commit(); -1: default of new files
};

// One kind of storage. Paths are complete (with their scheme, if they have one). Thread-safe.
// IoError names the path; UsageError for what this storage does not support.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  // Creates the parent folders. `already` is the size of an unfinished file that is continued.
  virtual std::unique_ptr<WritableFile> create(const std::string& path,
                                               const CreateOptions& options, uint64_t& already) = 0;
  // Creates the file with these bytes, complete; false if it exists. If several callers try at the
  // same time, exactly one gets true.
  virtual bool write_new(const std::string& path, std::string_view bytes) = 0;
  // Appends to the file, creating it if needed. Not atomic: for logs.
  virtual void append(const std::string& path, std::span<const std::byte> bytes) = 0;
  // One level, sorted by name, without uncommitted files, with dangling links.
  virtual std::vector<FileInfo> list(const std::string& folder) = 0;
  virtual std::optional<FileInfo> stat(const std::string& path) = 0;
  virtual void make_folder(const std::string& path) = 0;  // and its parents
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, a link or an empty folder.
  virtual void remove(const std::string& path) = 0;
  // Removes a folder with its contents.
  virtual void remove_tree(const std::string& path);
  // Removes what terminated writers have left in a folder (not below it). Call it only while nobody
  // else writes there.
  virtual void remove_unfinished(const std::string&) {}
};

// The storage of a path: "mem://...", "http://...", "https://...", "file://..." or a plain path.
// UsageError for another scheme.
FileSystem& file_system_of(const std::string& path);

std::unique_ptr<FileSystem> make_local_file_system();
std::unique_ptr<FileSystem> make_memory_file_system();
std::unique_ptr<FileSystem> make_http_file_system();  // read-only

constexpr std::string_view kPartSuffix = ".horon-part";  // of uncommitted files
constexpr std::string_view kSumsSuffix = ".horon-sums";  // of their checksums

}  // namespace horon::file
