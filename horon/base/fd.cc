#include "horon/base/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "horon/base/error.h"

namespace horon {

namespace fs = std::filesystem;

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

TempFolder::TempFolder(const std::string& name) : process_(getpid()) {
  path_ = (fs::temp_directory_path() / (name + "-XXXXXX")).string();
  if (mkdtemp(path_.data()) == nullptr) throw io_error("mkdtemp " + path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (getpid() == process_) fs::remove_all(path_, ignored);
}

std::string read_small_file(const std::string& path, size_t limit) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw io_error("open " + path);
  std::string bytes;
  char piece[4096];
  while (true) {
    const ssize_t got = read(file.get(), piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw io_error("read " + path);
    if (got == 0) return bytes;
    bytes.append(piece, static_cast<size_t>(got));
    if (bytes.size() > limit) {
      throw IoError(fmt::format("read {}: more than {} bytes", path, limit));
    }
  }
}

void write_private_file(const std::string& path, const std::string& bytes) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) throw io_error("create " + path);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno != EINTR) throw io_error("write " + path);
    if (put > 0) done += static_cast<size_t>(put);
  }
}

std::string file_identity(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 ? fmt::format("{}:{}", file.st_dev, file.st_ino) : "";
}

}  // namespace horon
