// What a rank receives on a connection between hosts, plain and encrypted, from a peer that says
// anything.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "horon/base/error.h"
#include "horon/comm/tcp/inbox.h"
#include "horon/net/link.h"

namespace {

using horon::tcp::Inbox;
using horon::tcp::Piece;

// Messages are posted before, between and after the bytes, as the first ones say.
struct Receiver {
  explicit Receiver(uint8_t plan) : plan_(plan) {}

  void post() {
    const uint64_t bytes = std::vector<uint64_t>{1, 24, 100, 70'000}[plan_ % 4];
    memory_.emplace_back(bytes);
    pieces_.emplace_back();
    pieces_.back().bytes = bytes;
    pieces_.back().data = (plan_ & 4) != 0 ? nullptr : memory_.back().data();
    const uint64_t flow = plan_ >> 7;
    inbox.post(flow, pieces_.back());
    inbox.due_credit(flow);
    plan_ = static_cast<uint8_t>(plan_ * 5 + 1);
  }

  Inbox inbox{{.moved =
                   [](Piece& piece) {
                     if (piece.moved > piece.bytes) __builtin_trap();
                   },
               .credit = [](uint64_t, uint64_t) {},
               .leave = [] {}}};

 private:
  uint8_t plan_;
  std::deque<std::vector<std::byte>> memory_;
  std::deque<Piece> pieces_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) return 0;
  horon::Fd peer(fds[1]);
  const bool is_private = (data[0] & 1) != 0;
  const int posts_before = data[0] >> 5;
  Receiver receiver(data[1]);
  std::optional<horon::LinkSecrets> secrets;
  if (is_private) secrets = {std::string(32, 'a'), std::string(32, 'b'), 2};
  horon::Link link(horon::Fd(fds[0]), secrets);
  try {
    for (int i = 0; i < posts_before; ++i) receiver.post();
    for (size_t at = 2; at < size;) {
      const size_t piece = std::min<size_t>(size - at, 1 + (data[at] & 0x7f));
      if (write(peer.get(), data + at, piece) <= 0) break;
      at += piece;
      link.receive(receiver.inbox, 1U << 20);
      if ((data[at - 1] & 3) == 0) receiver.post();
      if ((data[at - 1] & 31) == 5) receiver.inbox.close(0);
    }
  } catch (const horon::Error&) {
  }
  return 0;
}
