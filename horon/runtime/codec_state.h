#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "horon/codec/codec.h"
#include "horon/comm/communicator.h"

// What codecs keep from step to step: error feedback, momentum. It is each rank's own, and a part
// of a run like the weights: what is lost of it is lost of the gradients.
namespace horon {

// Of one rank, to be kept in a checkpoint: bytes by the names of the tensors. The bytes are a frame
// (net/wire.h) with the layout's number (u32: 1), the codec's name, how many numbers the tensor has
// (u64) and the names of the arrays; then the arrays, f32, little-endian, one after the other; then
// the CRC-32C (u32) of all that.
using CodecStates = std::map<std::string, std::string>;

// Pure: what rank `rank` of `ranks` takes over from a run of kept.size() ranks. That is the sum of
// what the ranks `rank`, `rank` + `ranks`, `rank` + 2 `ranks`, ... kept: on the same number of
// ranks each its own, bit for bit; on fewer, those that are gone are added to others; on more, the
// new ones begin with nothing. So the sum over all ranks stays: nothing that was not sent is lost.
// (Where results are averages, by `op` or `postscale`, it counts as one of the new number of
// ranks.) Error (exit code 13) if something is damaged, or the ranks kept different things.
CodecStates deal_codec_states(std::span<const CodecStates> kept, int rank, int ranks);

// All ranks, for a checkpoint that one of them writes: on rank 0 what each rank keeps, in the order
// of the ranks; on the others nothing.
std::vector<CodecStates> gather_codec_states(Communicator& comm, const CodecStates& mine);
// All ranks: rank 0 gives what a checkpoint of any number of ranks has, each rank gets what it
// takes over. What goes wrong with that on rank 0 is an Error (exit code 13) on all.
CodecStates scatter_codec_states(Communicator& comm, std::span<const CodecStates> kept);

// The arrays of the tensors of one set of ranks, by their names: whatever bucket or lane they come
// in. Any thread may call; a tensor is in one operation at a time. `device` is for arrays that lie
// on one, and may be null otherwise.
class CodecMemory {
 public:
  // Gives the segments their state, where the codec works. Zeros for a tensor that is new, or comes
  // with another size or codec than before.
  void attach(const std::string& name, const Codec& codec, std::vector<Segment>& segments,
              DeviceRuntime* device);

  // No operation may be going on.
  CodecStates save(DeviceRuntime* device) const;
  // Instead of all that is there. Error (exit code 13) for bytes that save() would not have made:
  // then nothing has changed.
  void restore(const CodecStates& states);
  // UsageError (exit code 13) if something was restored for this tensor that is of another codec
  // or size: it would be lost without a word. Only until the tensor comes for the first time.
  void check(const std::string& name, const std::string& tensor, uint64_t count) const;

 private:
  struct Entry {
    std::string codec;
    std::vector<std::string> names;  // of its arrays
    uint64_t count = 0;              // numbers of each
    OwnedBuffer arrays = {};         // one after the other
    bool restored = false;           // and not used yet
  };
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace horon
