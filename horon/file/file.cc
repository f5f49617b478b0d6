#include "horon/file/file.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/file/copy.h"

namespace horon::file {
namespace {

// "http://host/a/*" -> {"http://host", "/a/*"}; a plain path has no first part.
std::pair<std::string, std::string> split_scheme(const std::string& path) {
  const size_t colon = path.find("://");
  if (colon == std::string::npos) return {"", path};
  const size_t slash = path.find('/', colon + 3);
  if (slash == std::string::npos) return {path, ""};
  return {path.substr(0, slash), path.substr(slash)};
}

bool has_wildcard(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos;
}

void add_matches(const std::string& base, const std::vector<std::string>& names, size_t at,
                 std::vector<FileInfo>& found) {
  const auto descend = [&](const FileInfo& entry, size_t next) {
    if (next == names.size()) {
      found.push_back(entry);
    } else if (entry.is_folder) {
      add_matches(entry.path, names, next, found);
    }
  };
  const std::string& name = names[at];
  if (!has_wildcard(name)) {
    const auto entry = stat(join_path(base, name));
    if (entry) descend(*entry, at + 1);
    return;
  }
  const bool any_depth = name == "**";
  if (any_depth && at + 1 < names.size()) add_matches(base, names, at + 1, found);
  for (const FileInfo& entry : list(base.empty() ? "." : base)) {
    FileInfo named = entry;
    if (base.empty()) named.path = base_name(entry.path);
    if (any_depth) {
      if (named.is_folder && !named.is_link) add_matches(named.path, names, at, found);
      if (at + 1 == names.size()) found.push_back(named);
    } else if (const std::string own = base_name(named.path);
               own == name || fnmatch(name.c_str(), own.c_str(), FNM_PERIOD) == 0) {
      descend(named, at + 1);
    }
  }
}

}  // namespace

std::unique_ptr<ReadableFile> open(const std::string& path) {
  return file_system_of(path).open(path);
}

std::unique_ptr<WritableFile> create(const std::string& path) {
  uint64_t already = 0;
  return file_system_of(path).create(path, {}, already);
}

std::string read(const std::string& path, uint64_t limit) {
  const auto from = open(path);
  if (from->size() > limit)
    throw IoError(fmt::format("{}: {} is more than the {} that are expected of it", path,
                              format_bytes(from->size()), format_bytes(limit)));
  std::string bytes;
  bytes.reserve(from->size());
  from->read_all(0, [&](std::span<const std::byte> piece) {
    if (bytes.size() + piece.size() > limit)
      throw IoError(fmt::format("{}: more than {}", path, format_bytes(limit)));
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return bytes;
}

void write(const std::string& path, std::string_view bytes) {
  const auto to = create(path);
  to->append(bytes);
  to->commit();
}

void append(const std::string& path, std::string_view bytes) {
  file_system_of(path).append(path, std::as_bytes(std::span(bytes)));
}

bool write_new(const std::string& path, std::string_view bytes) {
  return file_system_of(path).write_new(path, bytes);
}

bool exists(const std::string& path) {
  const auto info = stat(path);
  return info && !info->leads_nowhere;
}
std::optional<FileInfo> stat(const std::string& path) { return file_system_of(path).stat(path); }
std::vector<FileInfo> list(const std::string& folder) {
  return file_system_of(folder).list(folder);
}

std::vector<FileInfo> list_tree(const std::string& folder, std::vector<FileInfo>* folders) {
  std::vector<FileInfo> files;
  for (FileInfo& entry : list(folder)) {
    if (!entry.is_folder || entry.is_link) {
      files.push_back(std::move(entry));
      continue;
    }
    for (FileInfo& below : list_tree(entry.path, folders)) files.push_back(std::move(below));
    if (folders != nullptr) folders->push_back(std::move(entry));
  }
  std::sort(files.begin(), files.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
  return files;
}

std::vector<FileInfo> glob(const std::string& pattern) {
  std::vector<FileInfo> found;
  const auto [scheme, rest] = split_scheme(pattern);
  if (!has_wildcard(rest)) {
    if (const auto entry = stat(pattern)) found.push_back(*entry);
    return found;
  }
  // file:///a is scheme and root; mem://a/b has its first name in the first part.
  const bool rooted = rest.starts_with('/') && (scheme.empty() || scheme == "file://");
  const std::string base = rooted ? scheme + "/" : scheme;
  std::vector<std::string> names = split(rest, '/');
  std::erase(names, "");
  add_matches(base, names, 0, found);
  std::sort(found.begin(), found.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
  const auto same = [](const FileInfo& a, const FileInfo& b) { return a.path == b.path; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

void make_folder(const std::string& path) { file_system_of(path).make_folder(path); }

void rename(const std::string& from, const std::string& to) {
  FileSystem& source = file_system_of(from);
  if (&source == &file_system_of(to)) return source.rename(from, to);
  const auto info = stat(from);
  if (info && info->is_folder)
    throw UsageError(fmt::format("{}: folders are not moved between storages; copy it", from));
  copy(from, to);
  source.remove(from);
}

void remove(const std::string& path) { file_system_of(path).remove(path); }

void remove_unfinished(const std::string& folder) {
  file_system_of(folder).remove_unfinished(folder);
}

void remove_tree(const std::string& path) { file_system_of(path).remove_tree(path); }

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

std::string base_name(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t slash = path.rfind('/', end);
  return path.substr(slash + 1, end - slash);
}

}  // namespace horon::file
