#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/bench/raw_peer.h"

namespace horon::bench {
namespace {

// Descriptors of this process's TCP connections.
std::vector<int> connections() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd =
        static_cast<int>(parse_integer(entry.path().filename().string(), "fd", 0, 1 << 20));
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
        (peer.sin_family == AF_INET || peer.sin_family == AF_INET6))
      found.push_back(fd);
  }
  return found;
}

int option_of(int socket, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  getsockopt(socket, level, option, &value, &length);
  return value;
}

// A peer in a benchmark is what its users have: nothing of ours may make it slower or faster.
TEST(RawGloo, KeepsTheSystemsSockets) {
  const auto store = make_memory_store();
  const auto folders = part_folders("");
  std::vector<float> other = {10, 20, 30};
  auto second = std::async(std::launch::async, [&] {
    auto peer = make_raw_gloo(1, 2, store, folders);
    peer->all_reduce(other.data(), other.size());
    return peer;
  });
  const auto first = make_raw_gloo(0, 2, store, folders);
  std::vector<float> data = {1, 2, 3};
  first->all_reduce(data.data(), data.size());
  const auto kept = second.get();
  EXPECT_EQ(data, (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(other, data);

  std::string congestion;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> congestion;
  const std::vector<int> sockets = connections();
  EXPECT_EQ(sockets.size(), 2U);
  for (int socket : sockets) {
    char name[16] = {};
    socklen_t length = sizeof(name);
    ASSERT_EQ(getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
    EXPECT_EQ(std::string(name), congestion);
    EXPECT_EQ(option_of(socket, SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  }
}

}  // namespace
}  // namespace horon::bench
