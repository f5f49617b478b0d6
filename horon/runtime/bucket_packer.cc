#include "horon/runtime/bucket_packer.h"

#include "horon/base/thread.h"
#include "horon/device/copy.h"

namespace horon {

void BucketPacker::declare(const std::vector<TensorSpec>& specs, const Plan& plan,
                           std::vector<OwnedBuffer>& buckets, std::vector<BufferView>& views) {
  declared_.clear();
  views.assign(specs.size(), BufferView());
  for (const Bucket& bucket : plan.declared()) {
    const TensorSpec& first = specs[bucket.tensors.front()];
    declared_.push_back(mover_.allocate(bucket.count, first.dtype, first.device));
    const BufferView whole = declared_.back().view();
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const size_t place = bucket.tensors[i];
      views[place] = whole.slice(bucket.offsets[i], specs[place].count);
    }
  }
  buckets.insert(buckets.end(), declared_.begin(), declared_.end());
}

BufferView BucketPacker::memory_of(const Plan& plan, int bucket) {
  const Bucket& planned = plan.buckets()[static_cast<size_t>(bucket)];
  if (planned.home >= 0) {
    const BufferView home = declared_[static_cast<size_t>(planned.home)].view();
    return home.slice(planned.home_offset, planned.count);
  }
  Memory& memory = others_[bucket];
  const TensorSpec& first = plan.tensor(planned.tensors.front());
  if (memory.key != planned.key)
    memory = {mover_.allocate(planned.count, first.dtype, first.device), planned.key};
  return memory.buffer.view();
}

BucketPacker::Packed BucketPacker::pack(const std::vector<Submission>& items, const Plan& plan,
                                        int bucket) {
  Packed packed;
  packed.layout = plan.buckets()[static_cast<size_t>(bucket)];
  // Only the bucket's own memory counts as "in place": between tensors that merely happen to lie at
  // these distances there is memory of other owners.
  packed.whole = memory_of(plan, bucket);
  std::vector<CopyJob> jobs;
  for (size_t i = 0; i < items.size(); ++i) {
    const BufferView& in = items[i].request.in;
    void* place = packed.whole.slice(packed.layout.offsets[i], in.count).data;
    if (in.data != place) jobs.push_back({place, in.data, in.bytes()});
    const bool leaves = items[i].request.out.data != place;
    packed.leaves = packed.leaves || leaves;
    packed.is_ready = packed.is_ready && items[i].request.ready != nullptr;
    packed.bytes_copied += (in.data != place ? in.bytes() : 0) + (leaves ? in.bytes() : 0);
  }
  if (!jobs.empty())
    copy_all(jobs, static_cast<int>(usable_cores().size()), packed.whole.device, device_,
             packed.is_ready);
  return packed;
}

void BucketPacker::unpack(const std::vector<Submission>& items, const Packed& packed) const {
  if (!packed.leaves) return;
  std::vector<CopyJob> jobs;
  for (size_t i = 0; i < items.size(); ++i) {
    const BufferView& out = items[i].request.out;
    void* place = packed.whole.slice(packed.layout.offsets[i], out.count).data;
    if (out.data != place) jobs.push_back({out.data, place, out.bytes()});
  }
  copy_all(jobs, static_cast<int>(usable_cores().size()), packed.whole.device, device_,
           packed.is_ready);
}

}  // namespace horon
