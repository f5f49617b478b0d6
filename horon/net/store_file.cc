#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "horon/base/error.h"
#include "horon/net/store.h"
#include "horon/net/store_key.h"

// One file per key, named by the key (percent-encoded); a value appears by rename, so a reader
// never sees a part of it. Waiting sleeps on inotify, and looks every 50 ms in case the folder is a
// network mount where inotify sees nothing of other hosts. Counters are guarded by flock on one
// lock file.
namespace horon {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void prepare_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw io_error("mkdir " + folder);
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) throw io_error("stat " + folder);
  require(S_ISDIR(info.st_mode), "file store: '" + folder + "' is not a folder");
  require(info.st_uid == geteuid(), "file store: '" + folder + "' belongs to another user");
  require((info.st_mode & 0022) == 0,
          "file store: '" + folder + "' is writable by others; chmod 700 it");
}

class FileStore final : public Store {
 public:
  explicit FileStore(const std::string& folder) : folder_(folder) { prepare_folder(folder); }

 private:
  void do_set(const std::string& key, const std::string& value, Deadline) override {
    static std::atomic<uint64_t> counter{0};
    const std::string temporary = fmt::format("{}/.tmp-{}-{}", folder_, getpid(), counter++);
    {
      const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (file.get() < 0) throw io_error("create " + temporary);
      const char* at = value.data();
      for (size_t left = value.size(); left > 0;) {
        const ssize_t written = write(file.get(), at, left);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw io_error("write " + temporary);
        at += written;
        left -= static_cast<size_t>(written);
      }
    }
    if (rename(temporary.c_str(), path_of(key).c_str()) != 0) throw io_error("rename " + temporary);
  }

  std::string do_get(const std::string& key, Deadline deadline) override {
    std::string value;
    if (read_value(key, value)) return value;
    const Descriptor watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (watch.get() >= 0) inotify_add_watch(watch.get(), folder_.c_str(), IN_MOVED_TO);
    while (!read_value(key, value)) {
      if (deadline.passed()) {
        throw TimeoutError(
            fmt::format("store: '{}' was not set before the deadline (folder {})", key, folder_));
      }
      wait_for_change(watch.get(), deadline);
    }
    return value;
  }

  static void wait_for_change(int watch, Deadline deadline) {
    using std::chrono::duration_cast;
    const auto slice =
        duration_cast<Milliseconds>(deadline.left(Milliseconds(50))) + Milliseconds(1);
    pollfd ready{watch, POLLIN, 0};
    poll(&ready, watch >= 0 ? 1 : 0, static_cast<int>(slice.count()));
    std::array<char, 4096> events{};
    while (watch >= 0 && read(watch, events.data(), events.size()) > 0) {
    }
  }

  int64_t do_add(const std::string& key, int64_t amount, Deadline deadline) override {
    const std::string lock_path = folder_ + "/.lock";
    const Descriptor lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock.get() < 0) throw io_error("open " + lock_path);
    while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) throw io_error("flock " + lock_path);
      if (deadline.passed()) throw TimeoutError("store: the lock of " + folder_ + " is held");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    std::string value;
    const int64_t sum = amount + (read_value(key, value) ? parse_counter(key, value) : 0);
    do_set(key, std::to_string(sum), deadline);
    return sum;  // closing the descriptor gives the lock back
  }

  bool do_remove(const std::string& key, Deadline) override {
    return unlink(path_of(key).c_str()) == 0;
  }

  std::string path_of(const std::string& key) const {
    std::string name = folder_ + "/";
    for (const char c : key) {
      const bool plain = (std::isalnum(static_cast<unsigned char>(c)) != 0) || c == '-' || c == '_';
      name += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
    const size_t slash = folder_.size() + 1;
    require(name.size() - slash <= 255,
            "file store: key '" + key + "' is too long for a file name");
    return name;
  }

  bool read_value(const std::string& key, std::string& value) const {
    const std::ifstream file(path_of(key), std::ios::binary);
    if (!file) return false;
    std::ostringstream bytes;
    bytes << file.rdbuf();
    value = bytes.str();
    return true;
  }

  std::string folder_;
};

}  // namespace

std::shared_ptr<Store> make_file_store(const std::string& folder) {
  return std::make_shared<FileStore>(folder);
}

}  // namespace horon
