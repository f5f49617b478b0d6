#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horon/comm/engine/channel.h"
#include "horon/comm/p2p/transport.h"

namespace horon {

// Collectives built from messages between pairs of ranks. In two shots every active member owns a
// range of the elements, receives that range from all others, reduces it in one pass, and sends the
// result to all: 2(n-1)/n of the data on each link, as in a ring, in two rounds instead of 2(n-1),
// and with one rounding for 16-bit floats. Small messages take fewer rounds and more bytes.
// Shares the transport; has the flow `id` of it as long as it lives. One thread at a time. Errors:
// as Transport::exchange, after which the channel is unusable.
class P2pChannel final : public Channel {
 public:
  static constexpr size_t kFrameBytes = 512;  // header and inline payload in one message

  P2pChannel(std::shared_ptr<Transport> transport, std::vector<int> members, uint64_t id);
  ~P2pChannel() override;
  // `takes_early`: see Transport.
  static std::vector<AlgorithmRow> algorithms(bool takes_early);

  int index() const override { return index_; }
  int size() const override { return static_cast<int>(members_.size()); }
  size_t inline_bytes() const override { return inline_bytes_; }
  void arrive(const Header& header, std::span<const std::byte> inline_data,
              Milliseconds timeout) override;
  std::span<const Header> headers() const override { return headers_; }
  const std::byte* inline_data(int member) const override;
  uint64_t address_of(const BufferView&) const override { return kNoAddress; }

  void all_reduce(const Round& round, BufferView data, ReduceOp op) override;
  void reduce_scatter(const Round& round, BufferView in, BufferView out,
                      std::span<const uint64_t> offsets, ReduceOp op) override;
  void all_gather(const Round& round, BufferView in, BufferView out,
                  std::span<const uint64_t> offsets) override;
  void broadcast(const Round& round, BufferView data, int root) override;
  void all_to_all(const Round& round, BufferView in, BufferView out,
                  const std::vector<std::vector<uint64_t>>& sends) override;
  void reduce_tree(const Round& round, const TreeCall& call) override;

  // From so many members on, arrive() compares digests in log2 n rounds; headers are exchanged only
  // if the operation needs those of all members, or if they differ.
  static constexpr int kMany = 16;
  // Combines the digests of all members; the result is the same on all. Each round waits a little
  // longer than the one before, because it waits for ranks that may wait themselves.
  HeaderDigest combine_digests(HeaderDigest mine, Milliseconds timeout);

  // For operations whose headers another channel compared: error messages name the next operations
  // after `header`.
  void describe_as(const Header& header) { headers_[static_cast<size_t>(index_)] = header; }
  // all_gather into separate segments: segments[i] receives member i's `in`.
  void gather(const BufferView& in, std::span<const BufferView> segments, Milliseconds timeout);

 private:
  // An operation in chunks: chunk k of every contributor is gathered (messages appended to a list),
  // reduced, and the result spread to all. While one is reduced, at most kAhead later ones are
  // being received, so the k-th may use the memory of the (k - kAhead)-th.
  struct Pipeline {
    uint64_t chunks = 0;
    std::function<void(uint64_t k, std::vector<Message>& messages)> gather;
    std::function<void(uint64_t k)> reduce;
    std::function<void(uint64_t k, std::vector<Message>& messages)> spread;
  };
  static constexpr uint64_t kAhead = 2;
  void run(const Pipeline& pipeline, Milliseconds timeout);
  // Runs the messages on this channel's flow; errors as Transport::exchange.
  void exchange(const std::vector<Message>& messages, Milliseconds timeout);
  uint64_t chunk_elements(DType dtype, size_t contributors) const;
  std::byte* frame(int member) {
    return frames_.data() + static_cast<size_t>(member) * kFrameBytes;
  }
  static size_t inline_bytes_of(const Transport& transport, size_t members);
  // Sends headers first; they contain the number of bytes that follow.
  void arrive_early(const Header& header, std::span<const std::byte> inline_data,
                    Milliseconds timeout);
  void arrive_in_frames(const Header& header, std::span<const std::byte> inline_data,
                        Milliseconds timeout);
  Message to(int member, const void* data, uint64_t bytes) const;
  Message from(int member, void* data, uint64_t bytes) const;
  void reduce_in_one_shot(const Round& round, BufferView data, ReduceOp op);
  void reduce_in_two_shots(const Round& round, BufferView data, ReduceOp op);
  // Appends messages that send theirs(member) to each member, and receive the members' parts of the
  // size of `mine` into `room`; `sources` becomes the parts' addresses, in the order of the
  // members.
  void gather_parts(const Round& round, const BufferView& mine,
                    const std::function<BufferView(int member)>& theirs, std::byte* room,
                    std::vector<const void*>& sources, std::vector<Message>& messages) const;
  static void reduce_sources(const Round& round, std::span<const void* const> sources,
                             BufferView out, ReduceOp op);
  void broadcast_by_tree(const Round& round, BufferView data, int root);
  void broadcast_by_scatter(const Round& round, BufferView data, int root);
  void gather_from(int member, const BufferView& in, const BufferView& theirs,
                   std::vector<Message>& messages) const;
  // Appends messages that send each owner's range of `out` to all members.
  void spread(const Round& round, BufferView out, std::span<const uint64_t> runs,
              std::vector<Message>& messages) const;

  std::shared_ptr<Transport> transport_;
  std::vector<int> members_;
  uint64_t id_;
  int index_ = 0;
  std::vector<Header> headers_;
  size_t inline_bytes_;
  std::vector<std::byte> frames_;              // of each member
  std::vector<const std::byte*> inline_data_;  // of each member
  std::vector<std::byte> scratch_;             // received data before it is reduced; reused
};

}  // namespace horon
