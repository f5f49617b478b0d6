#include "horon/net/store_message.h"

#include "horon/base/error.h"
#include "horon/net/wire.h"

namespace horon {

std::string pack(const StoreRequest& request) {
  return Packer()
      .u8(static_cast<uint8_t>(request.op))
      .u32(request.patience_ms)
      .texts(request.keys)
      .text(request.value)
      .u64(static_cast<uint64_t>(request.amount))
      .take();
}

std::string pack(const StoreReply& reply) {
  return Packer()
      .u8(static_cast<uint8_t>(reply.status))
      .texts(reply.values)
      .u64(static_cast<uint64_t>(reply.number))
      .text(reply.why)
      .take();
}

StoreRequest unpack_request(std::string_view bytes) {
  Unpacker from(bytes);
  StoreRequest request;
  const uint8_t op = from.u8();
  if (op < static_cast<uint8_t>(StoreOp::kSet) || op > static_cast<uint8_t>(StoreOp::kRemove)) {
    throw Error("store: unknown request", ExitCode::kPeer);
  }
  request.op = static_cast<StoreOp>(op);
  request.patience_ms = from.u32();
  request.keys = from.texts();
  request.value = from.text();
  request.amount = static_cast<int64_t>(from.u64());
  from.end();
  if (request.keys.empty() || (request.op != StoreOp::kGet && request.keys.size() != 1)) {
    throw Error("store: request with a wrong number of keys", ExitCode::kPeer);
  }
  return request;
}

StoreReply unpack_reply(std::string_view bytes) {
  Unpacker from(bytes);
  StoreReply reply;
  const uint8_t status = from.u8();
  if (status > static_cast<uint8_t>(StoreStatus::kUsage)) {
    throw Error("store: unknown reply", ExitCode::kPeer);
  }
  reply.status = static_cast<StoreStatus>(status);
  reply.values = from.texts();
  reply.number = static_cast<int64_t>(from.u64());
  reply.why = from.text();
  from.end();
  return reply;
}

}  // namespace horon
