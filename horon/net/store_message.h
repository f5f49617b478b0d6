#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/time.h"

// The protocol between a store's client and its server: frames inside TLS.
namespace horon {

enum class StoreOp : uint8_t { kSet = 1, kGet = 2, kAdd = 3, kRemove = 4 };

// A request of a client.
struct StoreRequest {
  StoreOp op = StoreOp::kGet;
  uint32_t patience_ms = 0;       // get: how long the server may wait
  std::vector<std::string> keys;  // get: all of them; others: one
  std::string value;              // set
  int64_t amount = 0;             // add
};

enum class StoreStatus : uint8_t { kOk = 0, kTimeout = 1, kUsage = 2 };

// The server's reply.
struct StoreReply {
  StoreStatus status = StoreStatus::kOk;
  std::vector<std::string> values;  // get
  int64_t number = 0;               // add: the sum; remove: 1 if it was there
  std::string why;                  // not ok
};

// The server's first frame after a client has authenticated: a connection that ends before it was
// not refused, only displaced by newer ones.
constexpr std::string_view kStoreWelcome = "horon store 1";

// Largest frame: one value with its key and some overhead; a reply for several keys may be split
// into frames.
constexpr size_t kStoreFrame = 4U << 20;

std::string pack(const StoreRequest& request);
std::string pack(const StoreReply& reply);
// Throw Error (exit code 10) for bytes that pack() does not produce.
StoreRequest unpack_request(std::string_view bytes);
StoreReply unpack_reply(std::string_view bytes);

}  // namespace horon
