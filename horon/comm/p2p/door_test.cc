#include "horon/comm/p2p/door.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>

#include "horon/base/error.h"
#include "horon/net/secret.h"
#include "horon/net/socket.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

std::future<std::vector<Fd>> begin(int rank, int size, const std::shared_ptr<Store>& store,
                                   Milliseconds timeout = std::chrono::seconds(20)) {
  return std::async(std::launch::async, [=] {
    return connect_mesh(
        {.rank = rank, .size = size, .interface = "", .one_host = true, .start_timeout = timeout},
        *store);
  });
}

// One byte each way between every two ranks.
void check_mesh(const std::vector<std::vector<Fd>>& links) {
  const int size = static_cast<int>(links.size());
  for (int from = 0; from < size; ++from) {
    EXPECT_FALSE(links[from][from]);
    for (int to = 0; to < size; ++to) {
      if (to == from) continue;
      const char byte = static_cast<char>(10 * from + to);
      ASSERT_EQ(send(links[from][to].get(), &byte, 1, 0), 1);
    }
  }
  for (int to = 0; to < size; ++to) {
    for (int from = 0; from < size; ++from) {
      if (to == from) continue;
      ASSERT_TRUE(wait_for(links[to][from].get(), 1 /* POLLIN */, soon()));
      char byte = 0;
      ASSERT_EQ(recv(links[to][from].get(), &byte, 1, 0), 1);
      EXPECT_EQ(byte, static_cast<char>(10 * from + to));
    }
  }
}

TEST(Door, ConnectsEveryPair) {
  for (const int size : {1, 2, 5}) {
    const auto store = make_memory_store();
    std::vector<std::future<std::vector<Fd>>> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(begin(rank, size, store));
    std::vector<std::vector<Fd>> links;
    for (auto& rank : ranks) links.push_back(rank.get());
    check_mesh(links);
  }
}

TEST(Door, ClosesWhenAllHaveCome) {
  const auto store = make_memory_store();
  auto first = begin(0, 2, store);
  auto second = begin(1, 2, store);
  const auto links = first.get();
  second.get();
  const Endpoint at = parse_endpoint(store->get("door/at/0", soon()));
  const Fd late = start_connect(at.host, at.port);
  EXPECT_TRUE(!late || connect_result(late.get()) == ECONNREFUSED);
}

TEST(Door, NamesWhoDidNotCome) {
  const auto store = make_memory_store();
  store->set("door/at/2", "127.0.0.1:9", soon());  // published its address, then died
  auto zero = begin(0, 3, store, Milliseconds(300));
  auto one = begin(1, 3, store, Milliseconds(300));
  try {
    zero.get();
    FAIL() << "a rank was made up";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{2});
  }
  EXPECT_THROW(one.get(), TimeoutError);
}

// Sends a text to a door and returns its answer until it closes (at most a second).
std::string try_door(const Endpoint& at, const std::string& words) {
  const Fd stranger = start_connect(at.host, at.port);
  if (!stranger || !wait_for(stranger.get(), 4 /* POLLOUT */, soon())) return "";
  send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL);
  char piece[256];
  if (!wait_for(stranger.get(), 1, Deadline::after(std::chrono::seconds(1)))) return "";
  const ssize_t got = recv(stranger.get(), piece, sizeof(piece), 0);
  return got > 0 ? std::string(piece, static_cast<size_t>(got)) : "";
}

TEST(Door, UnauthenticatedConnectionsNeitherEnterNorBlockARank) {
  const auto store = make_memory_store();
  // Rank 2 has published its address, so that the others open their doors and wait for it.
  const Fd reserved = listen_on("127.0.0.1", 0);
  store->set("door/at/2", format_endpoint(local_endpoint(reserved.get())), soon());
  auto zero = begin(0, 3, store);
  auto one = begin(1, 3, store);
  const Endpoint at = parse_endpoint(store->get("door/at/0", soon()));
  std::vector<Fd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(start_connect(at.host, at.port));
  EXPECT_EQ(try_door(at, "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"), "");
  EXPECT_EQ(try_door(at, std::string(36, '\0')), "");
  // A correct hello without the key is answered once; then the connection is closed.
  const std::string hello = "HORONd2\n" + Packer().u32(2).u32(0).u32(0).take() + random_bytes(16);
  for (int i = 0; i < 100; ++i) {
    const std::string answer = try_door(at, hello + random_bytes(32));
    EXPECT_EQ(answer.size(), 48U);  // its proof, not followed by a welcome
  }
  const std::string impostor =
      "HORONd2\n" + Packer().u32(0).u32(0).u32(0).take() + random_bytes(16);
  EXPECT_EQ(try_door(at, impostor), "");
  auto two = begin(2, 3, store);
  std::vector<std::vector<Fd>> links;
  links.push_back(zero.get());
  links.push_back(one.get());
  links.push_back(two.get());
  check_mesh(links);
}

TEST(Door, ListensWhereThePeersAre) {
  EXPECT_EQ(choose_address(1, {"10.9.0.1", "10.9.0.2"}), "10.9.0.2");
  EXPECT_EQ(choose_address(0, {"127.0.0.1", "127.0.0.1"}), "127.0.0.1");
  // The store is here, peers are elsewhere: by the routes (loopback stands for a network here).
  EXPECT_EQ(choose_address(0, {"127.0.0.1", "127.0.0.2"}), "127.0.0.1");
}

}  // namespace
}  // namespace horon
