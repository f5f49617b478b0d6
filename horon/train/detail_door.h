#pragma once

#include <fmt/format.h>

#include <exception>
#include <functional>

#include "horon/base/error.h"

namespace horon::train {

// Runs an entry point of the trainer's part: no exception leaves it. Errors are printed to stderr.
// Returns the exit code.
inline int guarded(const std::function<int()>& action) {
  try {
    return action();
  } catch (const Error& error) {
    fmt::print(stderr, "horon: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "horon: {}\n", error.what());
    return static_cast<int>(Error(error.what()).exit_code());
  }
}

}  // namespace horon::train
