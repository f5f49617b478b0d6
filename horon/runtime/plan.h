#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "horon/runtime/tensor.h"

// The plan: what is reduced together and in which order. Pure: the same on every rank that took
// part in the same agreements, independent of timing.
namespace horon {

// Sizes at which a bucket is full.
struct PlanLimits {
  uint64_t first_bytes = 1U << 20;  // first bucket, if smaller: transfers start early
  uint64_t bucket_bytes = 25U << 20;
};

// Tensors that share one collective.
struct Bucket {
  std::vector<size_t> tensors;    // indices into the planned list
  std::vector<uint64_t> offsets;  // of each tensor, in elements; 64-byte aligned
  uint64_t count = 0;             // elements in total
  uint64_t key = 0;               // of its contents: buckets with equal keys have one layout
  int home = -1;                  // declared bucket that contains its memory; -1: none
  uint64_t home_offset = 0;       // where it begins in that memory, in elements
};

// Goes through the list in order: tensors that can be fused fill a bucket until it is full; each
// other tensor gets a bucket of its own. Buckets are ordered by their last tensor.
std::vector<Bucket> plan_buckets(std::span<const TensorSpec> specs, const PlanLimits& limits);

// What is known of the tensors: all known ones, those that occur in every step (regular), and the
// buckets of these in the order in which they run, step after step. Tensors are regular if they
// were declared or have occurred twice. A declared tensor keeps its address: while it does
// not occur, its bucket is split there and nothing else moves. A value; not thread-safe. Views and
// references into it are valid until it changes.
class Plan {
 public:
  explicit Plan(PlanLimits limits) : limits_(limits) {}

  // Changes the sizes; the next step begins with the first bucket.
  void set_limits(const PlanLimits& limits);
  // Declares a list of tensors; forgets everything before it.
  void declare(const std::vector<TensorSpec>& specs);
  // Records an agreement: `run` were run, in this order; `skipped` were due, but submitted by no
  // rank: they leave the buckets until they have occurred several times again. Of tensors that are
  // not regular only the last few hundred are remembered.
  void learn(const std::vector<TensorSpec>& run, const std::vector<std::string>& skipped);

  // Starts over, on all ranks: declared tensors are regular, the rest is forgotten.
  void restart();
  // Starts the next step with the first bucket, on all ranks; everything learned is kept.
  void begin_step();
  // Digest of everything learned: plans with equal digests decide alike after begin_step(). Never
  // 0.
  uint64_t digest() const;

  const TensorSpec* find(const std::string& name) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // The buckets as planned by declare(), which have memory.
  const std::vector<Bucket>& declared() const { return declared_; }
  const TensorSpec& tensor(size_t index) const { return regular_[index]; }
  // -1: in no bucket, because it is not regular.
  int bucket_of(const std::string& name) const;
  // The tensor's bucket if it is regular and `spec` matches the plan; otherwise -1.
  int bucket_for(const TensorSpec& spec) const;
  std::vector<std::string> names_in(int bucket) const;

  // The next bucket to run; -1 if there is none.
  int expected() const { return buckets_.empty() ? -1 : expected_; }
  // Call after it was run.
  void advance();
  // Tensors of the buckets from the expected one to that of `last`, except those already run in
  // this step: they were skipped.
  std::vector<std::string> skipped_before(const std::string& last) const;

  // Changes whenever the buckets change.
  uint64_t version() const { return version_; }

 private:
  struct Known {
    TensorSpec spec;
    bool regular = false;
    bool declared = false;
    int bucket = -1;
    int strikes = 0;     // how often it was skipped
    int runs = 0;        // since it was last skipped
    uint64_t last = 0;   // value of clock_ when an agreement last ran it
    uint64_t round = 0;  // value of round_ when it was last run
    // Occurs in every step exactly as declared; `declared_as`: the declared specs.
    bool is_at_home(const std::vector<TensorSpec>& declared_as, size_t index) const;
  };
  void add_declared(std::vector<TensorSpec>& regular, std::vector<Bucket>& buckets) const;
  void forget();
  void rebuild(const std::string& after, bool always = false);

  PlanLimits limits_;
  std::vector<Known> known_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<TensorSpec> declared_specs_;  // the first elements of known_
  std::vector<Bucket> declared_;
  std::vector<TensorSpec> regular_;
  std::vector<Bucket> buckets_;
  int expected_ = 0;
  uint64_t version_ = 0;
  uint64_t clock_ = 0;  // counts runs by agreements
  uint64_t round_ = 1;  // counts passes through the buckets
};

}  // namespace horon
