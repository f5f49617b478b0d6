#pragma once

#include "horon/report/event.h"
#include "horon/report/screen.h"

namespace horon::report {

// Options of a Console.
struct ConsoleOptions {
  uint64_t every = 20;    // steps between lines, if there is no bar; 0: no lines
  bool hex_loss = false;  // prints each step's loss exactly, without a bar
};

// The sink for users: a progress bar on a terminal, otherwise a line every n-th step; a line for
// each evaluation; the summary.
class Console final : public Sink {
 public:
  // `screen` must outlive it.
  Console(Screen& screen, ConsoleOptions options) : screen_(screen), options_(options) {}
  void write(const Event& event) override;

 private:
  void tell_step(const Event& event);
  void tell_evaluation(const Event& event);
  void tell_end(const Event& event);

  Screen& screen_;
  ConsoleOptions options_;
};

}  // namespace horon::report
