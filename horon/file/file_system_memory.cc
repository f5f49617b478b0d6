#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "horon/base/error.h"
#include "horon/file/file_system.h"

namespace horon::file {
namespace {

using Bytes = std::vector<std::byte>;

struct Stored {
  std::shared_ptr<const Bytes> bytes;  // null: a folder
  int64_t modified_ns = 0;
};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// "mem://a/b/" and "mem://a//b" are "mem://a/b".
std::string normal(const std::string& path) {
  constexpr std::string_view kScheme = "mem://";
  std::string out(kScheme);
  for (size_t i = kScheme.size(); i < path.size(); ++i) {
    if (path[i] != '/' || (out.size() > kScheme.size() && out.back() != '/')) out += path[i];
  }
  while (out.size() > kScheme.size() && out.back() == '/') out.pop_back();
  return out;
}

IoError missing(const std::string& action, const std::string& path) {
  return IoError(fmt::format("{} {}: No such file or directory", action, path));
}

class MemoryReader final : public ReadableFile {
 public:
  MemoryReader(std::string path, std::shared_ptr<const Bytes> bytes)
      : path_(std::move(path)), bytes_(std::move(bytes)) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return bytes_->size(); }
  size_t read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= bytes_->size()) return 0;
    const size_t got = std::min<size_t>(out.size(), bytes_->size() - offset);
    if (got > 0) std::memcpy(out.data(), bytes_->data() + offset, got);
    return got;
  }

 private:
  std::string path_;
  std::shared_ptr<const Bytes> bytes_;
};

class MemoryFileSystem;

class MemoryWriter final : public WritableFile {
 public:
  MemoryWriter(MemoryFileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  using WritableFile::append;
  void append(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void commit() override;

 private:
  MemoryFileSystem& files_;
  std::string path_;
  Bytes bytes_;
};

class MemoryFileSystem final : public FileSystem {
 public:
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(normal(path));
    if (found == all_.end()) throw missing("open", path);
    if (!found->second.bytes) throw IoError("open " + path + ": it is a folder");
    return std::make_unique<MemoryReader>(path, found->second.bytes);
  }

  std::unique_ptr<WritableFile> create(const std::string& path, const CreateOptions&,
                                       uint64_t& already) override {
    already = 0;
    return std::make_unique<MemoryWriter>(*this, normal(path));
  }

  void put(const std::string& path, std::shared_ptr<const Bytes> bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(path);
    if (found != all_.end() && !found->second.bytes)
      throw IoError("create " + path + ": it is a folder");
    add_folders_above(path);
    all_[path] = {std::move(bytes), now_ns()};
  }

  bool write_new(const std::string& path, std::string_view bytes) override {
    const std::lock_guard lock(mutex_);
    const std::string name = normal(path);
    if (all_.contains(name)) return false;
    const auto whole = std::as_bytes(std::span(bytes));
    add_folders_above(name);
    all_[name] = {std::make_shared<Bytes>(whole.begin(), whole.end()), now_ns()};
    return true;
  }

  void append(const std::string& path, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    const std::string name = normal(path);
    auto grown = std::make_shared<Bytes>();
    if (all_.contains(name) && all_[name].bytes) *grown = *all_[name].bytes;
    grown->insert(grown->end(), bytes.begin(), bytes.end());
    add_folders_above(name);
    all_[name] = {std::move(grown), now_ns()};
  }

  std::vector<FileInfo> list(const std::string& folder) override {
    const std::lock_guard lock(mutex_);
    const std::string name = normal(folder);
    const auto found = all_.find(name);
    if (name != "mem://" && (found == all_.end() || found->second.bytes))
      throw missing("list", folder);
    std::vector<FileInfo> entries;
    const std::string prefix = name == "mem://" ? name : name + "/";
    for (auto at = all_.lower_bound(prefix); at != all_.end() && at->first.starts_with(prefix);
         ++at) {
      if (at->first.find('/', prefix.size()) == std::string::npos)
        entries.push_back(info(at->first, at->second));
    }
    return entries;
  }

  std::optional<FileInfo> stat(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(normal(path));
    if (found == all_.end()) return std::nullopt;
    return info(path, found->second);
  }

  void make_folder(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    const std::string name = normal(path);
    if (all_.contains(name) && all_[name].bytes)
      throw IoError("make folder " + path + ": it is a file");
    add_folders_above(name + "/x");
  }

  void rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(mutex_);
    const std::string old_name = normal(from);
    const std::string new_name = normal(to);
    if (!all_.contains(old_name)) throw missing("rename", from);
    add_folders_above(new_name);
    std::map<std::string, Stored> moved;
    for (auto at = all_.lower_bound(old_name); at != all_.end();) {
      const bool inside = at->first == old_name || at->first.starts_with(old_name + "/");
      if (!at->first.starts_with(old_name)) break;
      if (inside) moved[new_name + at->first.substr(old_name.size())] = at->second;
      at = inside ? all_.erase(at) : std::next(at);
    }
    for (auto& [name, stored] : moved) all_[name] = std::move(stored);
  }

  void remove(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    const std::string name = normal(path);
    const auto found = all_.find(name);
    if (found == all_.end()) throw missing("remove", path);
    const auto next = all_.upper_bound(name + "/");
    if (!found->second.bytes && next != all_.end() && next->first.starts_with(name + "/"))
      throw IoError("remove " + path + ": Directory not empty");
    all_.erase(found);
  }

 private:
  static FileInfo info(const std::string& path, const Stored& stored) {
    return {path, stored.bytes ? stored.bytes->size() : 0, stored.bytes == nullptr, false,
            stored.modified_ns};
  }
  void add_folders_above(const std::string& path) {
    for (size_t slash = path.find('/', 6); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const auto [at, fresh] = all_.try_emplace(path.substr(0, slash), Stored{nullptr, now_ns()});
      if (!fresh && at->second.bytes) throw IoError("make folder " + at->first + ": it is a file");
    }
  }
  std::mutex mutex_;  // guards all_
  std::map<std::string, Stored> all_;
};

void MemoryWriter::commit() { files_.put(path_, std::make_shared<Bytes>(std::move(bytes_))); }

}  // namespace

std::unique_ptr<FileSystem> make_memory_file_system() {
  return std::make_unique<MemoryFileSystem>();
}

}  // namespace horon::file
