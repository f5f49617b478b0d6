#include "horon/comm/shared/handover.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "horon/base/error.h"

namespace horon::shared {
namespace {

constexpr size_t kTokenBytes = 32;
struct Hello {
  char token[kTokenBytes];
  int32_t rank;
};

std::string random_token() {
  std::array<unsigned char, kTokenBytes / 2> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw io_error("getrandom");
  }
  std::string token;
  for (unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

Fd own_process() {
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (fd.get() < 0) throw io_error("pidfd_open");
  return fd;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  require(path.size() < sizeof(address.sun_path), "shm: path of the socket is too long: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

void send_with_fds(int socket, const void* data, size_t bytes, const std::vector<int>& fds) {
  iovec part{const_cast<void*>(data), bytes};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) {
    throw io_error("shm: send descriptors");
  }
}

// The descriptors of one message of exactly `bytes`; empty if the peer sent anything else.
std::vector<Fd> receive_with_fds(int socket, void* data, size_t bytes, size_t max_fds) {
  iovec part{data, bytes};
  std::vector<char> control(CMSG_SPACE(max_fds * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = -1;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  std::vector<Fd> fds;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); got >= 0 && head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  if (got != static_cast<ssize_t>(bytes)) fds.clear();
  return fds;
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void set_timeout(int socket, Clock::duration timeout) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count() + 1000;
  const timeval limit = {us / 1'000'000, us % 1'000'000};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

// A listening socket in a folder of its own (mode 0700), both gone when this is.
class Doorway {
 public:
  Doorway() {
    std::string pattern = (std::filesystem::temp_directory_path() / "horon-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw io_error("mkdtemp " + pattern);
    folder_ = pattern;
    socket_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(path());
    if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(socket_.get(), 256) != 0) {
      throw io_error("shm: listen on " + path());
    }
  }
  ~Doorway() {
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  Doorway(const Doorway&) = delete;
  Doorway& operator=(const Doorway&) = delete;

  std::string path() const { return folder_ + "/s"; }
  // Nothing when the deadline passes.
  Fd accept_one(Deadline deadline) const {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline.left()).count();
    pollfd ready{socket_.get(), POLLIN, 0};
    while (true) {
      const int count = poll(&ready, 1, static_cast<int>(left));
      if (count > 0) break;
      if (count == 0 || errno != EINTR || deadline.passed()) return Fd();
    }
    return Fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  std::string folder_;
  Fd socket_;
};

[[noreturn]] void throw_missing(const HandoverOptions& options, const std::vector<Fd>& processes) {
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    if (processes[rank].get() < 0) missing.push_back(options.names[rank]);
  }
  throw TimeoutError("shm: " + name_ranks(missing) + " did not come before the start timeout",
                     missing);
}

Handover serve(const HandoverOptions& options, Store& store, Deadline deadline) {
  Handover result;
  result.memory = Fd(memfd_create("horon", MFD_CLOEXEC));
  if (result.memory.get() < 0) throw io_error("memfd_create");
  if (ftruncate(result.memory.get(), static_cast<off_t>(options.bytes)) != 0) {
    throw io_error("ftruncate of shared memory");
  }
  result.processes.resize(options.size);
  result.processes[0] = own_process();
  const Doorway doorway;
  const std::string token = random_token();
  store.set("shm/door", token + doorway.path(), deadline);
  std::vector<Fd> guests(options.size);
  for (int come = 1; come < options.size;) {
    Fd guest = doorway.accept_one(deadline);
    if (guest.get() < 0) throw_missing(options, result.processes);
    set_timeout(guest.get(), deadline.left(std::chrono::seconds(2)));
    Hello hello{};
    auto fds = receive_with_fds(guest.get(), &hello, sizeof(hello), 1);
    const bool known = same_user(guest.get()) && fds.size() == 1 && hello.rank > 0 &&
                       hello.rank < options.size &&
                       std::memcmp(hello.token, token.data(), kTokenBytes) == 0;
    if (!known || result.processes[hello.rank].get() >= 0) continue;  // not one of ours: closed
    result.processes[hello.rank] = std::move(fds[0]);
    guests[hello.rank] = std::move(guest);
    ++come;
  }
  std::vector<int> all = {result.memory.get()};
  for (const Fd& process : result.processes) all.push_back(process.get());
  for (int rank = 1; rank < options.size; ++rank) send_with_fds(guests[rank].get(), "!", 1, all);
  return result;
}

Handover visit(const HandoverOptions& options, Store& store, Deadline deadline) {
  const std::string door = store.get("shm/door", deadline);
  require(door.size() > kTokenBytes, "shm: the store holds no address of rank 0");
  const sockaddr_un address = address_of(door.substr(kTokenBytes));
  const Fd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    throw io_error("shm: connect to rank 0");
  }
  if (!same_user(connection.get())) throw Error("shm: rank 0 is another user", ExitCode::kAuth);
  set_timeout(connection.get(), deadline.left());
  Hello hello{};
  std::memcpy(hello.token, door.data(), kTokenBytes);
  hello.rank = options.rank;
  const Fd mine = own_process();
  send_with_fds(connection.get(), &hello, sizeof(hello), {mine.get()});
  char answer = 0;
  const auto expected = static_cast<size_t>(options.size) + 1;
  auto fds = receive_with_fds(connection.get(), &answer, 1, expected);
  if (fds.size() != expected) {
    throw TimeoutError(
        fmt::format(
            "shm: rank {} did not hand over the memory; another rank of this host may be missing",
            options.names[0]),
        {options.names[0]});
  }
  Handover result;
  result.memory = std::move(fds[0]);
  for (size_t i = 1; i < fds.size(); ++i) result.processes.push_back(std::move(fds[i]));
  return result;
}

}  // namespace

Handover hand_over(const HandoverOptions& options, Store& store, Deadline deadline) {
  return options.rank == 0 ? serve(options, store, deadline) : visit(options, store, deadline);
}

}  // namespace horon::shared
