#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "horon/file/file_system.h"

namespace horon::file {

// One file, with its permissions where both storages have them. Continues an unfinished copy where
// the storage can, behind what is still as it was written; reads what was written once more and
// compares (IoError if it differs).
struct CopyOptions {
  bool verifies = true;
  std::function<void(uint64_t bytes)> on_bytes;  // written now; may be null
  std::stop_token stop;
};
void copy(const std::string& from, const std::string& to, const CopyOptions& options = {});

// What has to be done to have a tree twice. Pure.
struct CopyPlan {
  struct Item {
    std::string from;
    std::string to;
    uint64_t bytes = 0;
  };
  std::vector<Item> items;
  uint64_t bytes = 0;
  uint64_t skipped = 0;               // files that are there already: as large, and not older
  std::vector<std::string> left_out;  // links, "PATH: reason"
  std::vector<std::string> folders;   // to make
};
// `source` and `target` are the folders' files (list_tree); a file `a/b/x` below `a` becomes
// `to/b/x`. Links to files become files; links to folders, and those that lead nowhere, are left
// out.
CopyPlan plan_copy(const std::string& from, const std::vector<FileInfo>& source,
                   const std::string& to, const std::vector<FileInfo>& target);

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
  std::vector<std::string> left_out;  // links to folders or to nowhere, "PATH: reason"
};
// A file or a whole folder. What is there already is not copied again; a file that fails does not
// stop the others. IoError if there is nothing to copy at all.
TreeCopyResult copy_parallel(const std::string& from, const std::string& to,
                             const TreeCopyOptions& options = {});

}  // namespace horon::file
