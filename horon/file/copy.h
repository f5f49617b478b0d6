#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "horon/file/file_system.h"

namespace horon::file {

// Copies one file, with its permissions if both storages support them. Continues an unfinished copy
// if the storage supports it, after verifying what was written. Reads back and compares what was
// written (IoError if it differs).
struct CopyOptions {
  bool verifies = true;
  std::function<void(uint64_t bytes)> on_bytes;  // newly written bytes; may be null
  std::stop_token stop;
};
void copy(const std::string& from, const std::string& to, const CopyOptions& options = {});

// The work needed to copy a tree. Pure.
struct CopyPlan {
  struct Item {
    std::string from;
    std::string to;
    uint64_t bytes = 0;
  };
  std::vector<Item> items;
  uint64_t bytes = 0;
  uint64_t skipped = 0;               // files that exist: same size, not older
  std::vector<std::string> left_out;  // links, "PATH: reason"
  std::vector<std::string> folders;   // to create
};
// `source` and `target` are the contents of the folders (list_tree); a file `a/b/x` below `a`
// becomes `to/b/x`. Links to files become files; links to folders and dangling links are left out.
CopyPlan plan_copy(const std::string& from, const std::vector<FileInfo>& source,
                   const std::string& to, const std::vector<FileInfo>& target);

// How copy_parallel() works.
struct TreeCopyOptions {
  int threads = 16;
  bool verifies = true;
  // Called by one thread at a time.
  std::function<void(uint64_t bytes, uint64_t bytes_total, size_t files, size_t files_total)>
      progress;
  std::stop_token stop;
};
struct TreeCopyResult {
  size_t copied = 0;
  size_t skipped = 0;
  uint64_t bytes = 0;
  std::vector<std::string> failed;    // "PATH: reason"
  std::vector<std::string> left_out;  // links to folders and dangling links, "PATH: reason"
};
// Copies a file or a folder. Existing files are skipped; a file that fails does not stop the
// others. IoError if there is nothing to copy.
//   const auto result = file::copy_parallel("https://host/data", "/tmp/data", {.threads = 8});
TreeCopyResult copy_parallel(const std::string& from, const std::string& to,
                             const TreeCopyOptions& options = {});

}  // namespace horon::file
