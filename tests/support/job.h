#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horon/base/time.h"
#include "horon/net/store.h"

// N real processes that meet in a file store, for tests: start, kill or stop one at a chosen
// moment, collect exit codes and output. Nothing outlives the object.
namespace horon::testing_support {

struct Outcome {
  int code = -1;      // exit code, or -1
  int signal = 0;     // that ended it, or 0
  bool hung = false;  // still there at the deadline: killed by us
  std::string output;
};

class Job {
 public:
  // Starts `size` processes of `program`. Each gets `arguments` and --rank R --size N --store
  // FOLDER.
  Job(const std::string& program, int size, const std::vector<std::string>& arguments);
  // One command for all ranks (mpirun ...); gets --store FOLDER only.
  Job(const std::vector<std::string>& command, const std::vector<std::string>& arguments);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The ranks' store: wait here until a rank says that it is at the chosen moment.
  Store& store() { return *store_; }
  void signal(int rank, int number) const;
  // Waits for all; those still there at the deadline are killed.
  std::vector<Outcome> wait(Deadline deadline);

 private:
  void launch(const std::vector<std::string>& command, const std::string& log);
  std::string folder_;
  std::shared_ptr<Store> store_;
  std::vector<pid_t> processes_;
  std::vector<std::string> logs_;
};

// "rank 2: exit 1: ..." for every outcome that is not a clean exit; empty when all are.
std::string describe_failures(const std::vector<Outcome>& outcomes);

}  // namespace horon::testing_support
