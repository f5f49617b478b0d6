#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace horon {

// Counters of one rank since its runtime was made. Always on. A value; may be read while operations
// run.
struct RuntimeCounters {
  uint64_t operations = 0;        // completed without an error
  uint64_t collectives = 0;       // that carried them: buckets and single operations
  uint64_t control_messages = 0;  // for agreements; 0 in a step that repeats
  uint64_t bytes = 0;             // payload
  uint64_t bytes_copied = 0;      // into and out of buckets
  uint64_t overtaken = 0;         // times a large transfer paused between chunks for an urgent one
  std::vector<uint64_t> waited_us = {};  // by rank of the job: how long this rank waited for it

  RuntimeCounters& operator+=(const RuntimeCounters& other) {
    operations += other.operations;
    collectives += other.collectives;
    control_messages += other.control_messages;
    bytes += other.bytes;
    bytes_copied += other.bytes_copied;
    overtaken += other.overtaken;
    if (waited_us.size() < other.waited_us.size()) waited_us.resize(other.waited_us.size());
    for (size_t i = 0; i < other.waited_us.size(); ++i) waited_us[i] += other.waited_us[i];
    return *this;
  }
};

}  // namespace horon
