#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "horon/codec/codec.h"
#include "horon/comm/communicator.h"

// Codec state: what codecs keep from step to step (error feedback, momentum). Each rank has its
// own. It belongs to a run like the weights: lost codec state is lost gradient.
namespace horon {

// The codec state of one rank, as kept in a checkpoint: tensor name -> bytes. The bytes are a frame
// (net/wire.h) with the layout version (u32: 1), the codec's name, the number of elements of the
// tensor (u64) and the names of the arrays; then the arrays, f32, little-endian, one after another;
// then the CRC-32C (u32) of everything before it.
using CodecStates = std::map<std::string, std::string>;

// What rank `rank` of `ranks` continues with when kept.size() ranks made the checkpoint: the sum of
// what ranks `rank`, `rank` + `ranks`, `rank` + 2 `ranks`, ... kept. With the same number of ranks
// each gets its own state, bit for bit; with fewer, the state of missing ranks is added to others;
// with more, the new ranks start from zero. So the sum over all ranks is preserved: no unsent value
// is lost. (Where results are averages, by `op` or `postscale`, it is averaged over the new number
// of ranks.) Error (exit code 13) if something is damaged or the ranks have different states. Pure.
CodecStates deal_codec_states(std::span<const CodecStates> kept, int rank, int ranks);

// Collects the states for a checkpoint that one rank writes: on rank 0 the state of each rank, in
// rank order; on the others nothing. All ranks call it.
//
//   kept = gather_codec_states(runtime.world(), runtime.save_codec_state());  // into a checkpoint
//   runtime.restore_codec_state(scatter_codec_states(runtime.world(), kept));  // and back
std::vector<CodecStates> gather_codec_states(Communicator& comm, const CodecStates& mine);
// Distributes the states of a checkpoint made by any number of ranks, as deal_codec_states() does.
// All ranks call it; `kept` is read on rank 0. An error on rank 0 is an Error (exit code 13) on all
// ranks.
CodecStates scatter_codec_states(Communicator& comm, std::span<const CodecStates> kept);

// Owns the codec state of one set of ranks, by tensor name, independent of bucket and lane.
// Thread-safe; a tensor is in one operation at a time. `device` serves arrays in device memory and
// may be null otherwise.
class CodecMemory {
 public:
  // Points the segments to their state, in the memory where the codec works. Zeros for a tensor
  // that is new or has changed its size or codec.
  void attach(const std::string& name, const Codec& codec, std::vector<Segment>& segments,
              DeviceRuntime* device);

  // No operation may be running.
  CodecStates save(DeviceRuntime* device) const;
  // Replaces the whole state. Error (exit code 13) for bytes that save() would not produce; then
  // nothing has changed.
  void restore(const CodecStates& states);
  // UsageError (exit code 13) if the state restored for this tensor has another codec or size and
  // would be lost silently. Has an effect only until the tensor is first used.
  void check(const std::string& name, const std::string& tensor, uint64_t count) const;

 private:
  struct Entry {
    std::string codec;
    std::vector<std::string> names;  // of its arrays
    uint64_t count = 0;              // elements of each array
    OwnedBuffer arrays = {};         // one after another
    bool restored = false;           // but not used yet
  };
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace horon
