#include "horon/launch/agent_message.h"

#include "horon/base/error.h"
#include "horon/net/wire.h"

namespace horon::launch {
namespace {

constexpr uint32_t kMaxPlacements = 1U << 20;

int as_int(uint32_t value) { return static_cast<int>(value); }
uint32_t as_wire(int value) { return static_cast<uint32_t>(value); }

struct Write {
  Packer& to;
  void operator()(const StartRanks& start) const {
    to.text(start.secret).text(start.host).text(start.folder);
    to.texts(start.command).texts(start.environment).u8(start.bind ? 1 : 0);
    to.u32(static_cast<uint32_t>(start.placements.size()));
    for (const RankPlacement& placement : start.placements) {
      for (const int number : {placement.rank, placement.size, placement.local_rank,
                               placement.local_size, placement.cross_rank, placement.cross_size})
        to.u32(as_wire(number));
    }
  }
  void operator()(const SignalRanks& message) const { to.u32(as_wire(message.signal)); }
  void operator()(const EndRanks&) const {}
  void operator()(const StillHere&) const {}
  void operator()(const AgentHello& hello) const {
    to.text(hello.version).text(hello.host_name).text(hello.ssh_connection);
  }
  void operator()(const RankStarted& started) const {
    to.u32(as_wire(started.rank)).u32(as_wire(started.pid));
  }
  void operator()(const RankOutput& output) const {
    to.u32(as_wire(output.rank)).u8(output.is_error ? 1 : 0).text(output.bytes);
  }
  void operator()(const RankEnded& ended) const {
    to.u32(as_wire(ended.rank)).u32(as_wire(ended.status)).text(ended.problem);
  }
};

struct Read {
  Unpacker& from;
  void operator()(StartRanks& start) const {
    start.secret = from.text();
    start.host = from.text();
    start.folder = from.text();
    start.command = from.texts();
    start.environment = from.texts();
    start.bind = from.u8() != 0;
    const uint32_t count = from.u32();
    if (count > kMaxPlacements) throw Error("agent: too many ranks in a message", ExitCode::kPeer);
    for (uint32_t i = 0; i < count; ++i) {
      RankPlacement placement;
      for (int* number : {&placement.rank, &placement.size, &placement.local_rank,
                          &placement.local_size, &placement.cross_rank, &placement.cross_size})
        *number = as_int(from.u32());
      if (placement.local_size < 1 || placement.local_rank < 0 ||
          placement.local_rank >= placement.local_size)
        throw Error("agent: a rank without a placement", ExitCode::kPeer);
      start.placements.push_back(placement);
    }
  }
  void operator()(SignalRanks& message) const { message.signal = as_int(from.u32()); }
  void operator()(EndRanks&) const {}
  void operator()(StillHere&) const {}
  void operator()(AgentHello& hello) const {
    hello.version = from.text();
    hello.host_name = from.text();
    hello.ssh_connection = from.text();
  }
  void operator()(RankStarted& started) const {
    started.rank = as_int(from.u32());
    started.pid = as_int(from.u32());
  }
  void operator()(RankOutput& output) const {
    output.rank = as_int(from.u32());
    output.is_error = from.u8() != 0;
    output.bytes = from.text();
  }
  void operator()(RankEnded& ended) const {
    ended.rank = as_int(from.u32());
    ended.status = as_int(from.u32());
    ended.problem = from.text();
  }
};

template <typename Message>
std::string pack_any(const Message& message) {
  Packer to;
  to.u8(static_cast<uint8_t>(message.index()));
  std::visit(Write{to}, message);
  return to.take();
}

// The variant's alternative number `index`, default-made.
template <typename Message, size_t I = 0>
Message make_alternative(size_t index) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (index == I) return Message(std::in_place_index<I>);
    return make_alternative<Message, I + 1>(index);
  } else {
    throw Error("agent: unknown message", ExitCode::kPeer);
  }
}

template <typename Message>
Message unpack_any(std::string_view bytes) {
  Unpacker from(bytes);
  Message message = make_alternative<Message>(from.u8());
  std::visit(Read{from}, message);
  from.end();
  return message;
}

}  // namespace

std::string pack(const ToAgent& message) { return pack_any(message); }
std::string pack(const FromAgent& message) { return pack_any(message); }
ToAgent unpack_to_agent(std::string_view bytes) { return unpack_any<ToAgent>(bytes); }
FromAgent unpack_from_agent(std::string_view bytes) { return unpack_any<FromAgent>(bytes); }

}  // namespace horon::launch
