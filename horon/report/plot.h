#pragma once

#include <string>
#include <utility>
#include <vector>

namespace horon::report {

// One curve of a plot.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// A line plot with its labels. A value.
struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  std::vector<std::pair<double, std::string>> x_ticks;  // position and text
  bool is_linear = false;  // axes; otherwise logarithmic, and values must be positive
};

// Draws a plot as SVG text.
std::string draw_svg(const Plot& plot);
// Combines several plots, one below another.
std::string stack_svg(const std::vector<std::string>& pictures);

}  // namespace horon::report
