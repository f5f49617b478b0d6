#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "horon/runtime/tensor.h"

// What is reduced together, and in which order. Pure: the same on every rank that saw the same
// agreements, never a matter of time.
namespace horon {

struct PlanLimits {
  uint64_t first_bytes = 1U << 20;    // of the first bucket: the wire should not wait long
  uint64_t bucket_bytes = 25U << 20;  // of the others
};

struct Bucket {
  std::vector<size_t> tensors;    // places in the list that was planned
  std::vector<uint64_t> offsets;  // of each, in elements; 64-byte aligned
  uint64_t count = 0;             // elements of the whole
  uint64_t key = 0;               // of its contents: buckets with one key have one layout
  int home = -1;                  // number of the declared bucket whose memory it lies in; -1: none
  uint64_t home_offset = 0;       // where it begins there, in elements
};

// Walks the list in its order: tensors that can be fused fill a bucket until it is full; what
// cannot be fused is a bucket of its own. Buckets come in the order of their last tensor.
std::vector<Bucket> plan_buckets(std::span<const TensorSpec> specs, const PlanLimits& limits);

// The tensors that are known, those among them that come in every step (regular), and the buckets
// of these in the order in which they are run, round and round. Regular are tensors that were
// declared, and those that have come twice. Declared tensors have their place in memory for good:
// while one of them does not come, its bucket is cut there, and nothing else moves.
class Plan {
 public:
  explicit Plan(PlanLimits limits) : limits_(limits) {}

  // Other sizes from now on; the next step begins with the first bucket.
  void set_limits(const PlanLimits& limits);
  // The list as declared; forgets everything before it.
  void declare(const std::vector<TensorSpec>& specs);
  // After an agreement: `run` were run, in this order; `skipped` were due and nobody had them: they
  // leave the buckets, until they have come several times again. Of tensors that are not regular
  // only the last few hundred are remembered.
  void learn(const std::vector<TensorSpec>& run, const std::vector<std::string>& skipped);

  // All ranks begin anew: what was declared is regular, the rest is forgotten.
  void restart();
  // All ranks begin the next step with the first bucket, and know what they know.
  void begin_step();
  // Of all that it has learnt: plans with one digest decide alike after begin_step(). Never 0.
  uint64_t digest() const;

  const TensorSpec* find(const std::string& name) const;
  bool is_regular(const std::string& name) const { return bucket_of(name) >= 0; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // As planned by declare(): these have memory.
  const std::vector<Bucket>& declared() const { return declared_; }
  size_t known() const { return known_.size(); }
  const TensorSpec& tensor(size_t place) const { return regular_[place]; }
  // -1: not in a bucket.
  int bucket_of(const std::string& name) const;
  // Its bucket if the tensor is in one and asks for what is planned; else -1.
  int bucket_for(const TensorSpec& spec) const;
  std::vector<std::string> names_in(int bucket) const;

  // The bucket that comes next; -1 if there is none.
  int expected() const { return buckets_.empty() ? -1 : expected_; }
  // It was run.
  void advance();
  // Tensors of the buckets from the expected one to that of `last`, but for those that have been
  // run in this round already: they were passed over.
  std::vector<std::string> passed_over(const std::string& last) const;

  // Changes whenever buckets do.
  uint64_t version() const { return version_; }

 private:
  struct Known {
    TensorSpec spec;
    bool regular = false;
    bool declared = false;
    int bucket = -1;
    int strikes = 0;     // how often it was skipped
    int runs = 0;        // since it was skipped last
    uint64_t last = 0;   // when it was run by an agreement, in such runs
    uint64_t round = 0;  // in which it was run last
  };
  bool is_at_home(const Known& known) const;
  void add_declared(std::vector<TensorSpec>& regular, std::vector<Bucket>& buckets) const;
  void forget();
  void rebuild(const std::string& after, bool always = false);

  PlanLimits limits_;
  std::vector<Known> known_;
  std::unordered_map<std::string, size_t> place_;
  std::vector<TensorSpec> declared_specs_;  // the first of known_
  std::vector<Bucket> declared_;
  std::vector<TensorSpec> regular_;
  std::vector<Bucket> buckets_;
  int expected_ = 0;
  uint64_t version_ = 0;
  uint64_t clock_ = 0;  // counts runs by agreements
  uint64_t round_ = 1;  // through the buckets
};

}  // namespace horon
