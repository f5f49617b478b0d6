#include "horon/file/file_system.h"

#include <fmt/format.h>

#include <map>

#include "horon/base/error.h"

namespace horon::file {
namespace {

constexpr size_t kPiece = 1U << 20;

}  // namespace

void ReadableFile::read_all(uint64_t offset,
                            const std::function<void(std::span<const std::byte>)>& piece) const {
  std::vector<std::byte> buffer(kPiece);
  while (true) {
    const size_t got = read_at(offset, buffer);
    if (got == 0) return;
    piece(std::span(buffer).first(got));
    offset += got;
  }
}

void FileSystem::remove_tree(const std::string& path) {
  const auto info = stat(path);
  if (info && info->is_folder && !info->is_link) {
    for (const FileInfo& entry : list(path)) remove_tree(entry.path);
  }
  remove(path);
}

FileSystem& file_system_of(const std::string& path) {
  static const std::map<std::string, std::shared_ptr<FileSystem>> kAll = [] {
    const std::shared_ptr<FileSystem> http = make_http_file_system();
    const std::shared_ptr<FileSystem> local = make_local_file_system();
    return std::map<std::string, std::shared_ptr<FileSystem>>{{"", local},
                                                              {"file", local},
                                                              {"mem", make_memory_file_system()},
                                                              {"http", http},
                                                              {"https", http}};
  }();
  const size_t colon = path.find("://");
  const std::string scheme = colon == std::string::npos ? "" : path.substr(0, colon);
  const auto found = kAll.find(scheme);
  if (found == kAll.end()) {
    throw UsageError(fmt::format(
        "{}: storage '{}://' is not built in; there are: plain paths, file://, mem://, http://, "
        "https://",
        path, scheme));
  }
  return *found->second;
}

}  // namespace horon::file
