#pragma once

#include <string>
#include <vector>

namespace horon::report {

// The path of a run's log in its folder.
std::string log_of(const std::string& run);

// Draws accuracy and, below it, loss over epochs, from the runs' logs, as SVG text. Several runs
// are labelled with the names of their folders. UsageError: a folder has no log.
std::string draw_runs(const std::vector<std::string>& runs);

}  // namespace horon::report
