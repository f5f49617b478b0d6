#pragma once

#include <string>

namespace horon {

class Fd {  // owns a descriptor
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

 private:
  int fd_;
};

// A folder of its own with mode 0700 under TMPDIR, removed with all in it by its destructor (not by
// a forked child's).
class TempFolder {
 public:
  explicit TempFolder(const std::string& name = "horon");
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int process_;
};

// The whole of a small file; IoError if it cannot be read or is larger than `limit` bytes.
std::string read_small_file(const std::string& path, size_t limit = 1U << 20);

// Makes the file with mode 0600; IoError if there is one already.
void write_private_file(const std::string& path, const std::string& bytes);

// "DEVICE:INODE" of what is open there, one of its kind on this host; empty if nothing is.
std::string file_identity(int fd);

}  // namespace horon
