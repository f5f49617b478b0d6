#pragma once

#include <string>
#include <vector>

#include "horon/file/file_system.h"

// Files by path, on any storage. All functions are thread-safe and throw IoError with the path and
// the reason.
//   file::write("run/result.json", text);         // atomic
//   const std::string text = file::read("mem://x/result.json");
namespace horon::file {

// Opens a file for reading; creates one for writing, visible after commit().
std::unique_ptr<ReadableFile> open(const std::string& path);
std::unique_ptr<WritableFile> create(const std::string& path);

// The contents of the file; IoError if it is larger than `limit`.
std::string read(const std::string& path, uint64_t limit = 1U << 30);
// Atomic: a reader sees the old contents or the new.
void write(const std::string& path, std::string_view bytes);
void append(const std::string& path, std::string_view bytes);
// Creates the file; false if it exists. If several callers try, exactly one gets true.
bool write_new(const std::string& path, std::string_view bytes);

bool exists(const std::string& path);  // false for a dangling link
// Information about a file or folder, nothing if there is none; the entries of a folder, sorted.
std::optional<FileInfo> stat(const std::string& path);
std::vector<FileInfo> list(const std::string& folder);
// Files below a folder, sorted by path, including dangling links and links to folders, which are
// not followed (they could form a cycle). `folders` receives the folders below it.
std::vector<FileInfo> list_tree(const std::string& folder,
                                std::vector<FileInfo>* folders = nullptr);
// Files and folders that match a pattern: * ? [..] inside a name, ** for any number of folders. A
// name that exists exactly as written also matches. Sorted.
std::vector<FileInfo> glob(const std::string& pattern);

// Creates a folder and its parents; renames; removes a file, a link or an empty folder; removes a
// folder with its contents.
void make_folder(const std::string& path);
void rename(const std::string& from, const std::string& to);  // between storages: copy and remove
void remove(const std::string& path);
void remove_tree(const std::string& path);
// Removes what terminated writers have left in a folder. Call it only while nobody else writes
// there.
void remove_unfinished(const std::string& folder);

// "folder/name"; the part after the last slash.
std::string join_path(const std::string& folder, const std::string& name);
std::string base_name(const std::string& path);

}  // namespace horon::file
