#pragma once

#include <string>

namespace horon::report {

// Prints a run's output on rank 0; the other ranks' screens print nothing. One thread.
class Screen {
 public:
  explicit Screen(bool speaks);
  bool has_bar() const { return terminal_; }
  void say(const std::string& line);
  // Prints a line that the next one replaces. Only on a terminal: this process's own, or that of
  // `horon run` if stdout is still its pipe (named by HORON_TERMINAL).
  void bar(const std::string& line);

 private:
  bool speaks_;
  bool terminal_;
  size_t shown_ = 0;  // width of the current bar
};

}  // namespace horon::report
