#include "horon/comm/engine/op_queue.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <semaphore>

namespace horon {
namespace {

// How a forked child ends that does `body` and nothing else; -1: it does not.
int end_of_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.passed()) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    usleep(1000);
  }
  return status;
}

TEST(OpQueue, AForkedChildClosesItsCopyWhateverTheParentsThreadsDo) {
  auto queue = std::make_unique<OpQueue>("queue");
  std::binary_semaphore begun(0);
  std::binary_semaphore goes_on(0);
  const Work work = queue->submit([&] {
    begun.release();
    goes_on.acquire();
  });
  begun.acquire();
  EXPECT_EQ(end_of_child([&] { queue.reset(); }), 0) << "while an operation runs";
  EXPECT_EQ(end_of_child([&] { _exit(queue->close(Deadline::never()) ? 0 : 1); }), 0);
  goes_on.release();
  work.wait();
  queue->run([] {});  // the thread has nothing to do, or will have soon
  usleep(10'000);
  EXPECT_EQ(end_of_child([&] { queue.reset(); }), 0) << "while its thread waits for operations";
  queue->submit([] {}).wait();  // the parent's works on
}

}  // namespace
}  // namespace horon
