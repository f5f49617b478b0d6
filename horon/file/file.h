#pragma once

#include <string>
#include <vector>

#include "horon/file/file_system.h"

// Files by path, wherever they are. Errors: IoError with the path and the reason.
namespace horon::file {

std::unique_ptr<ReadableFile> open(const std::string& path);
std::unique_ptr<WritableFile> create(const std::string& path);

// The whole file; IoError if it is larger than `limit`.
std::string read(const std::string& path, uint64_t limit = 1U << 30);
// Atomic: a reader sees the old contents or the new.
void write(const std::string& path, std::string_view bytes);
void append(const std::string& path, std::string_view bytes);
// True if there was no such file and now there is; of several that try, one gets true.
bool write_new(const std::string& path, std::string_view bytes);

bool exists(const std::string& path);  // not a link that leads nowhere
std::optional<FileInfo> stat(const std::string& path);
std::vector<FileInfo> list(const std::string& folder);
// Files below a folder, sorted by path; also links to folders, which are not followed (they might
// lead back here), and links that lead nowhere. `folders`: gets those that are below it.
std::vector<FileInfo> list_tree(const std::string& folder,
                                std::vector<FileInfo>* folders = nullptr);
// Files and folders that match; * ? [..] inside a name, ** for any number of folders. A name that
// is there exactly as written matches, too. Sorted.
std::vector<FileInfo> glob(const std::string& pattern);

void make_folder(const std::string& path);
void rename(const std::string& from, const std::string& to);  // between storages: copy and remove
void remove(const std::string& path);
void remove_tree(const std::string& path);
// What writers that died have left in a folder. For when nobody else writes there.
void remove_unfinished(const std::string& folder);

std::string join(const std::string& folder, const std::string& name);
std::string base_name(const std::string& path);

}  // namespace horon::file
