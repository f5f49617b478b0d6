#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "horon/comm/tcp/tcp_transport.h"

// Ranks of one tcp transport, each a thread, for the tests of comm/tcp.
namespace horon::testing_support {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }
inline constexpr Milliseconds kPatience{20000};

inline std::vector<uint8_t> pattern(size_t bytes, int seed) {
  std::vector<uint8_t> data(bytes);
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761U + 1;
  for (uint8_t& byte : data) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return data;
}

// Runs `body` on each rank of a new transport, each in a thread; the errors' texts, "" without.
using Body = std::function<void(int rank, Transport& transport)>;
inline std::vector<std::string> run(int size, const TcpOptions& base, const Body& body,
                                    const std::function<std::shared_ptr<Store>(int)>& store_of) {
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      TcpOptions options = base;
      options.rank = rank;
      options.size = size;
      options.host_id = "here";
      try {
        const auto transport = make_tcp_transport(options, store_of(rank), Log());
        std::vector<int> all;
        for (int peer = 0; peer < size; ++peer) all.push_back(peer);
        transport->connect(all);
        for (const uint64_t flow : {1, 2, 3}) transport->open_flow(flow, all);
        body(rank, *transport);
      } catch (const std::exception& error) {
        return error.what();
      }
      return "";
    }));
  }
  std::vector<std::string> errors;
  for (auto& rank : ranks) errors.push_back(rank.get());
  return errors;
}

inline TcpOptions wire(bool is_private) {
  TcpOptions options;
  options.is_private = is_private;
  return options;
}

inline std::vector<std::string> run(int size, const TcpOptions& base, const Body& body) {
  const auto store = make_memory_store();
  return run(size, base, body, [&](int) { return store; });
}

inline void exchange(Transport& transport, uint64_t flow, const std::vector<Message>& messages,
                     Milliseconds timeout = kPatience) {
  transport.exchange({.messages = messages,
                      .flow = flow,
                      .timeout = timeout,
                      .doing = [] { return std::string("a test"); },
                      .received = {}});
}

// Sends `bytes` to the other of two ranks and receives as many; false if others came.
inline bool swap_with_other(Transport& transport, uint64_t flow, size_t bytes) {
  const int me = transport.rank();
  auto mine = pattern(bytes, me + static_cast<int>(flow));
  std::vector<uint8_t> theirs(bytes);
  exchange(transport, flow,
           {{1 - me, true, mine.data(), bytes}, {1 - me, false, theirs.data(), bytes}});
  return theirs == pattern(bytes, 1 - me + static_cast<int>(flow));
}

}  // namespace horon::testing_support
