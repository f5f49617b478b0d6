#pragma once

#include <string>
#include <utility>
#include <vector>

namespace horon::cli {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  std::vector<std::pair<double, std::string>> x_ticks;  // position and text
  bool is_linear = false;  // axes; else logarithmic, and values must be positive
};

// A picture as SVG text.
std::string draw_svg(const Plot& plot);
// Several, one below the other.
std::string stack_svg(const std::vector<std::string>& pictures);

}  // namespace horon::cli
