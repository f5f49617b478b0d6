// A door of libhoron_train.so: what benchmarks measure inside it.
#include "horon/base/api.h"
#include "horon/bench/train_rank.h"
#include "horon/train/detail_door.h"

// `plan`: JSON, see train_rank.h. What was measured goes to the file that it names.
extern "C" HORON_API int horon_train_bench(const char* plan) {
  return horon::train::guarded([&] {
    horon::bench::run_train_steps(plan);
    return 0;
  });
}
