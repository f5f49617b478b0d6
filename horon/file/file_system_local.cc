#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <random>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/base/failpoint.h"
#include "horon/base/fd.h"
#include "horon/base/text.h"
#include "horon/file/file_system.h"

namespace horon::file {
namespace {

std::string plain(const std::string& path) {
  constexpr std::string_view kScheme = "file://";
  return path.starts_with(kScheme) ? path.substr(kScheme.size()) : path;
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

FileInfo info_of(const std::string& path, const struct stat& status, bool is_link) {
  // Times far from ours (a year 3000) stay in range.
  const int64_t seconds = std::clamp<int64_t>(status.st_mtim.tv_sec, 0, 9'000'000'000);
  return {.path = path,
          .bytes = S_ISDIR(status.st_mode) ? 0 : static_cast<uint64_t>(status.st_size),
          .is_folder = S_ISDIR(status.st_mode),
          .is_link = is_link,
          .modified_ns = seconds * 1'000'000'000 + status.st_mtim.tv_nsec,
          .mode = static_cast<int>(status.st_mode & 0777)};
}

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw io_error("write " + path);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
}

// Fewer bytes than requested only at the end; negative: see errno.
ssize_t read_fully(int fd, uint64_t offset, std::span<std::byte> out) {
  size_t got = 0;
  while (got < out.size()) {
    const ssize_t once =
        pread(fd, out.data() + got, out.size() - got, static_cast<off_t>(offset + got));
    if (once < 0 && errno == EINTR) continue;
    if (once < 0) return once;
    if (once == 0) break;
    got += static_cast<size_t>(once);
  }
  return static_cast<ssize_t>(got);
}

void sync_folder(const std::string& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot: their metadata is as safe as it gets.
  if (!fd || (fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP))
    throw io_error("fsync " + folder);
}

class LocalReader final : public ReadableFile {
 public:
  explicit LocalReader(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (!fd_ || fstat(fd_.get(), &status) != 0) throw io_error("open " + path);
    if (S_ISDIR(status.st_mode)) throw IoError("open " + path + ": it is a folder");
    if (!S_ISREG(status.st_mode)) throw IoError("open " + path + ": it is no plain file");
    size_ = static_cast<uint64_t>(status.st_size);
  }
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }
  size_t read_at(uint64_t offset, std::span<std::byte> out) const override {
    const ssize_t got = read_fully(fd_.get(), offset, out);
    if (got < 0) throw io_error("read " + path_);
    return static_cast<size_t>(got);
  }

 private:
  std::string path_;
  Fd fd_;
  uint64_t size_ = 0;
};

// Checksums of the whole megabytes of an unfinished file, taken when they were written and kept
// beside it: whatever happened to the file since, only what is still the same is gone on with.
class BlockSums {
 public:
  BlockSums(const std::string& path, uint64_t identity)
      : path_(path),
        identity_(identity),
        fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
    if (!fd_) throw io_error("create " + path);
  }
  // Cuts the file behind what is good, and returns the size of that.
  uint64_t keep_good(int part, const std::string& part_path) {
    uint64_t identity = 0;
    uint32_t sum = 0;
    uint64_t blocks = 0;
    std::vector<std::byte> block(kBlock);
    if (read_whole(fd_.get(), 0, std::as_writable_bytes(std::span(&identity, 1))) &&
        identity == identity_) {
      while (read_whole(fd_.get(), place_of(blocks), std::as_writable_bytes(std::span(&sum, 1))) &&
             read_whole(part, blocks * kBlock, block) && crc32c(block.data(), kBlock) == sum)
        ++blocks;
    }
    if (ftruncate(part, static_cast<off_t>(blocks * kBlock)) != 0)
      throw io_error("cut " + part_path);
    if (ftruncate(fd_.get(), blocks > 0 ? static_cast<off_t>(place_of(blocks)) : 0) != 0)
      throw io_error("cut " + path_);
    if (blocks == 0) write_all(fd_.get(), std::as_bytes(std::span(&identity_, 1)), path_);
    return blocks * kBlock;
  }
  // These bytes were written behind the others.
  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t some = std::min<uint64_t>(bytes.size(), kBlock - in_block_);
      crc_ = crc32c(bytes.data(), some, crc_);
      in_block_ += some;
      bytes = bytes.subspan(some);
      if (in_block_ < kBlock) return;
      write_all(fd_.get(), std::as_bytes(std::span(&crc_, 1)), path_);
      crc_ = 0;
      in_block_ = 0;
    }
  }
  void remove() { unlink(path_.c_str()); }

 private:
  static constexpr uint64_t kBlock = 1U << 20;
  static uint64_t place_of(uint64_t block) { return sizeof(uint64_t) + block * sizeof(uint32_t); }
  static bool read_whole(int fd, uint64_t offset, std::span<std::byte> out) {
    return read_fully(fd, offset, out) == static_cast<ssize_t>(out.size());
  }
  std::string path_;
  uint64_t identity_;
  Fd fd_;
  uint32_t crc_ = 0;  // of the block that is not whole yet
  uint64_t in_block_ = 0;
};

// Writes a temporary file beside the target; then fsync, rename, fsync of the folder.
class LocalWriter final : public WritableFile {
 public:
  LocalWriter(const std::string& path, const CreateOptions& options, uint64_t& already)
      : path_(path), mode_(options.mode) {
    options.resumes ? resume(options.identity, already) : begin();
  }
  ~LocalWriter() override {
    if (!committed_ && !sums_) unlink(part_.c_str());
  }
  void append(std::span<const std::byte> bytes) override {
    write_all(fd_.get(), bytes, part_);
    if (sums_) sums_->add(bytes);
  }
  std::string temporary() const override { return part_; }
  void commit() override {
    if (mode_ >= 0 && fchmod(fd_.get(), static_cast<mode_t>(mode_)) != 0)
      throw io_error("chmod " + part_);
    failpoint("file_written");
    if (fsync(fd_.get()) != 0) throw io_error("fsync " + part_);
    failpoint("file_synced");
    if (::rename(part_.c_str(), path_.c_str()) != 0) throw io_error("rename to " + path_);
    failpoint("file_renamed");
    committed_ = true;
    if (sums_) sums_->remove();
    fd_.reset();
    sync_folder(parent_of(path_));
  }

 private:
  void begin() {
    static std::atomic<uint64_t> counter{0};
    static const uint64_t kUnique = std::random_device()() | uint64_t{std::random_device()()} << 32;
    part_ = fmt::format("{}.{:x}-{}{}", path_, kUnique, counter++, kPartSuffix);
    open_part(O_EXCL);
  }
  void resume(const std::string& identity, uint64_t& already) {
    part_ = path_ + std::string(kPartSuffix);
    struct stat opened {};
    struct stat named {};
    do {  // until what was opened still has its name: another one may just have finished it
      open_part(O_APPEND);
      // Two that write the same file would mix their bytes.
      if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        throw IoError("create " + path_ + ": somebody else is writing it");
      if (fstat(fd_.get(), &opened) != 0) throw io_error("create " + part_);
    } while (::stat(part_.c_str(), &named) != 0 || named.st_ino != opened.st_ino);
    sums_.emplace(path_ + std::string(kSumsSuffix), hash_text(identity));
    already = sums_->keep_good(fd_.get(), part_);
  }
  // Private and writable until it is finished, whatever it will be.
  void open_part(int how) {
    fd_.reset(::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | how, mode_ >= 0 ? 0600 : 0666));
    if (!fd_) throw io_error("create " + part_);
    failpoint("file_created");
  }

  std::string path_;
  int mode_;
  std::string part_;
  std::optional<BlockSums> sums_;  // of one that can be resumed
  bool committed_ = false;
  Fd fd_;
};

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    return std::make_unique<LocalReader>(plain(path));
  }

  std::unique_ptr<WritableFile> create(const std::string& path, const CreateOptions& options,
                                       uint64_t& already) override {
    make_folder(parent_of(plain(path)));
    if (std::filesystem::is_directory(plain(path)))
      throw IoError(fmt::format("create {}: it is a folder", path));
    return std::make_unique<LocalWriter>(plain(path), options, already);
  }

  // A name that a whole file gets, unless it is taken.
  bool write_new(const std::string& path, std::string_view bytes) override {
    make_folder(parent_of(plain(path)));
    uint64_t already = 0;
    LocalWriter file(plain(path), {}, already);
    file.append(std::as_bytes(std::span(bytes)));
    if (link(file.temporary().c_str(), plain(path).c_str()) == 0) return true;
    if (errno == EEXIST) return false;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) throw io_error("create " + path);
    // A storage without links: the name first, then the bytes.
    const Fd fd(::open(plain(path).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd && errno == EEXIST) return false;
    if (!fd) throw io_error("create " + path);
    write_all(fd.get(), std::as_bytes(std::span(bytes)), path);
    return true;
  }

  void append(const std::string& path, std::span<const std::byte> bytes) override {
    const Fd fd(::open(plain(path).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!fd) throw io_error("append to " + path);
    write_all(fd.get(), bytes, path);
  }

  std::vector<FileInfo> list(const std::string& folder) override {
    DIR* dir = opendir(plain(folder).c_str());
    if (dir == nullptr) throw io_error("list " + folder);
    const std::unique_ptr<DIR, int (*)(DIR*)> closes(dir, closedir);
    std::vector<FileInfo> found;
    while (true) {
      errno = 0;
      const dirent* entry = readdir(dir);
      if (entry == nullptr && errno != 0) throw io_error("list " + folder);
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name == "." || name == ".." || name.ends_with(kPartSuffix) || name.ends_with(kSumsSuffix))
        continue;
      const std::string path = (folder.ends_with('/') ? folder : folder + "/") + name;
      if (const auto info = stat(path)) found.push_back(*info);  // not if it has just gone
    }
    std::sort(found.begin(), found.end(),
              [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
    return found;
  }

  std::optional<FileInfo> stat(const std::string& path) override {
    struct stat own {};
    struct stat status {};
    const bool there = lstat(plain(path).c_str(), &own) == 0;
    if (there && ::stat(plain(path).c_str(), &status) == 0)
      return info_of(path, status, S_ISLNK(own.st_mode));
    if (there && S_ISLNK(own.st_mode))
      return FileInfo{.path = path, .is_link = true, .leads_nowhere = true};
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return std::nullopt;
    throw io_error("stat " + path);
  }

  void make_folder(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(plain(path), error);
    if (error) throw IoError(fmt::format("make folder {}: {}", path, error.message()));
  }

  void rename(const std::string& from, const std::string& to) override {
    make_folder(parent_of(plain(to)));
    if (::rename(plain(from).c_str(), plain(to).c_str()) != 0)
      throw io_error(fmt::format("rename {} to {}", from, to));
    sync_folder(parent_of(plain(to)));
  }

  void remove(const std::string& path) override {
    if (::remove(plain(path).c_str()) != 0) throw io_error("remove " + path);
  }

  void remove_unfinished(const std::string& folder) override {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(plain(folder), error)) {
      const std::string name = entry.path().filename();
      if (name.ends_with(kPartSuffix) || name.ends_with(kSumsSuffix)) unlink(entry.path().c_str());
    }
  }

  // Links are removed, not what they point to; what is being written goes, too.
  void remove_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(plain(path), error);
    if (error) throw IoError(fmt::format("remove {}: {}", path, error.message()));
  }
};

}  // namespace

std::unique_ptr<FileSystem> make_local_file_system() { return std::make_unique<LocalFileSystem>(); }

}  // namespace horon::file
