#pragma once

#include <cstdint>
#include <vector>

namespace horon {

// Always on, of one rank; read while it runs.
struct RuntimeCounters {
  uint64_t operations = 0;               // that ended well
  uint64_t collectives = 0;              // that carried them: buckets and single ones
  uint64_t control_messages = 0;         // agreements and calls for them; 0 in a step that repeats
  uint64_t bytes = 0;                    // of payload
  uint64_t bytes_copied = 0;             // into and out of buckets
  uint64_t overtaken = 0;                // times that a large transfer made way between chunks
  std::vector<uint64_t> waited_us = {};  // for each rank of the job: how long we waited for it

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
