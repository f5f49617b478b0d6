#include "horon/comm/p2p/transport.h"

#include <algorithm>

namespace horon {
namespace {

constexpr uint64_t kPieceBytes = 64U << 20;  // fits MPI's int

}  // namespace

void exchange_in_batches(const Exchange& exchange,
                         const std::function<void(std::span<const Message>)>& run_batch) {
  std::vector<Message> batch(exchange.messages.begin(), exchange.messages.end());
  std::vector<Message> pieces;
  for (size_t first = 0; !batch.empty();) {
    pieces.clear();
    for (const Message& message : batch) {
      for (uint64_t at = 0; at < message.bytes; at += kPieceBytes) {
        pieces.push_back({message.peer, message.is_send, static_cast<char*>(message.data) + at,
                          std::min(kPieceBytes, message.bytes - at)});
      }
    }
    run_batch(pieces);
    std::vector<Message> more;
    for (size_t i = 0; exchange.received && i < batch.size(); ++i) {
      if (!batch[i].is_send) exchange.received(first + i, batch[i].data, more);
    }
    first += batch.size();
    batch = std::move(more);
  }
}

}  // namespace horon
