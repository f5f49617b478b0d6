#pragma once

#include <string>

namespace horon::train {

// What people see of a run. Rank 0's; the others' is silent.
class Screen {
 public:
  explicit Screen(bool speaks);
  bool has_bar() const { return terminal_; }
  void say(const std::string& line);
  // One line that the next one replaces; only on a terminal: of its own, or of the `horon run` that
  // started it, if stdout is still the pipe there (HORON_TERMINAL names it).
  void bar(const std::string& line);

 private:
  bool speaks_;
  bool terminal_;
  size_t shown_ = 0;  // width of the bar that is there
};

}  // namespace horon::train
