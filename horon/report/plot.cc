#include "horon/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace horon::report {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 520;
constexpr double kLeft = 80;
constexpr double kRight = 150;
constexpr double kTop = 50;
constexpr double kBottom = 60;
constexpr std::array<const char*, 9> kColours = {"#888888", "#d62728", "#ff9896",
                                                 "#9467bd", "#2ca02c", "#1f77b4",
                                                 "#bcbd22", "#17becf", "#8c564b"};

struct Range {
  double low = 1e300;
  double high = -1e300;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

class Frame {
 public:
  explicit Frame(const Plot& plot) : linear_(plot.is_linear) {
    for (const Series& series : plot.series) {
      for (const auto& [x, y] : series.points) {
        x_.take(scale(x));
        y_.take(scale(y));
      }
    }
    if (linear_) {
      x_.low = std::min(x_.low, 0.0);
      y_.low = std::min(y_.low, 0.0);
      step_ = step_for(y_.high - y_.low);
    }
    y_.low = std::floor(y_.low / step_) * step_;
    y_.high = std::ceil(y_.high / step_) * step_;
    if (x_.high <= x_.low) x_.high = x_.low + 1;
    if (y_.high <= y_.low) y_.high = y_.low + 1;
  }
  double x(double value) const {
    return kLeft + (scale(value) - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom -
           (scale(value) - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }
  // Values of the horizontal and the vertical grid lines.
  std::vector<double> y_values() const {
    std::vector<double> values;
    for (double at = y_.low; at <= y_.high + step_ / 2; at += step_)
      values.push_back(linear_ ? at : std::pow(10, at));
    return values;
  }
  std::vector<double> x_values() const {
    std::vector<double> values;
    const double step = step_for(x_.high - x_.low);
    for (double at = x_.low; linear_ && at <= x_.high + step / 100; at += step)
      values.push_back(at);
    return values;
  }

 private:
  double scale(double value) const { return linear_ ? value : std::log10(value); }
  // At most eight, each 1, 2 or 5 times a power of ten.
  static double step_for(double length) {
    if (!(length > 0)) return 1;
    const double decade = std::pow(10, std::floor(std::log10(length)));
    for (const double factor : {0.1, 0.2, 0.5, 1.0}) {
      if (length / (factor * decade) <= 8) return factor * decade;
    }
    return 2 * decade;
  }
  bool linear_;
  double step_ = 1;

  Range x_;
  Range y_;
};

std::string text_at(double x, double y, const std::string& text, const char* anchor,
                    int size = 12) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", x, y,
      anchor, size, text);
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
      y2, colour);
}

std::string draw_axes(const Plot& plot, const Frame& frame) {
  std::string svg;
  const double right = kWidth - kRight;
  const double bottom = kHeight - kBottom;
  for (const double value : frame.y_values()) {
    svg += line(kLeft, frame.y(value), right, frame.y(value), "#e5e5e5");
    svg += text_at(kLeft - 8, frame.y(value) + 4, fmt::format("{:g}", value), "end");
  }
  auto ticks = plot.x_ticks;
  for (const double value : frame.x_values()) ticks.emplace_back(value, fmt::format("{:g}", value));
  for (const auto& [value, label] : ticks) {
    svg += line(frame.x(value), kTop, frame.x(value), bottom, "#f2f2f2");
    svg += text_at(frame.x(value), bottom + 18, label, "middle", 11);
  }
  svg += line(kLeft, kTop, kLeft, bottom, "#333") + line(kLeft, bottom, right, bottom, "#333");
  svg += text_at((kLeft + right) / 2, kHeight - 14, plot.x_label, "middle");
  svg += fmt::format(
      "<text transform=\"translate(20,{:.0f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kTop + bottom) / 2, plot.y_label);
  return svg + text_at((kLeft + right) / 2, 28, plot.title, "middle", 16);
}

std::string draw_series(const Series& series, const Frame& frame, const char* colour) {
  std::string path;
  std::string dots;
  for (const auto& [x, y] : series.points) {
    path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", frame.x(x), frame.y(y));
    if (series.points.size() <= 60)
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>", frame.x(x),
                          frame.y(y), colour);
  }
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>{}\n", path,
                     colour, dots);
}

}  // namespace

std::string draw_svg(const Plot& plot) {
  const Frame frame(plot);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += draw_axes(plot, frame);
  // Labels at the right end of the curves, moved apart where they would overlap.
  std::vector<std::pair<double, size_t>> labels;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    if (plot.series[i].points.empty()) continue;
    svg += draw_series(plot.series[i], frame, kColours[i % kColours.size()]);
    labels.emplace_back(frame.y(plot.series[i].points.back().second), i);
  }
  std::sort(labels.begin(), labels.end());
  double last = -100;
  for (const auto& [wanted, i] : labels) {
    last = std::max(wanted, last + 15);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" font-weight=\"bold\">{}</text>\n",
        kWidth - kRight + 10, last + 4, kColours[i % kColours.size()], plot.series[i].name);
  }
  return svg + "</svg>\n";
}

std::string stack_svg(const std::vector<std::string>& pictures) {
  std::string all = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\">\n",
      kWidth, kHeight * static_cast<double>(pictures.size()));
  for (size_t i = 0; i < pictures.size(); ++i)
    all += fmt::format("<g transform=\"translate(0,{})\">\n{}</g>\n",
                       kHeight * static_cast<double>(i), pictures[i]);
  return all + "</svg>\n";
}

}  // namespace horon::report
