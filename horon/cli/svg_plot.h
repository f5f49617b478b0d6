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
};

// A picture with logarithmic axes, as SVG text. Values must be positive.
std::string draw_svg(const Plot& plot);

}  // namespace horon::cli
