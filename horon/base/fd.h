#pragma once

#include <string>

namespace horon {

// Owns a descriptor (-1: none) and closes it in the destructor; errors of close() are ignored. One
// thread at a time. Does not throw.
class Fd {
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

// A new folder with mode 0700 under TMPDIR; IoError if it cannot be created. The destructor removes
// it with its contents, except in a forked child.
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

// The contents of a small file; IoError if it cannot be read or is larger than `limit` bytes.
std::string read_small_file(const std::string& path, size_t limit = 1U << 20);

// Creates the file with mode 0600; IoError if it exists.
void write_private_file(const std::string& path, const std::string& bytes);

// "DEVICE:INODE" of the open file, unique on this host; empty if `fd` is closed.
std::string file_identity(int fd);

}  // namespace horon
