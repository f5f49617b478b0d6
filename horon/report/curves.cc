#include "horon/report/curves.h"

#include <map>

#include "horon/file/file.h"
#include "horon/report/json_lines.h"
#include "horon/report/plot.h"

namespace horon::report {
namespace {

struct Curve {
  const char* number;  // as named in events
  const char* name;
};
using Points = std::map<double, double>;  // by epoch

void add(Plot& plot, const std::string& of, const Curve& curve, const Points& points,
         double factor) {
  if (points.empty()) return;
  Series series{of + curve.name, {}};
  for (const auto& [epoch, value] : points) series.points.emplace_back(epoch, value * factor);
  plot.series.push_back(std::move(series));
}

Plot over_epochs(const std::string& title, const std::string& label) {
  Plot plot{.title = title, .x_label = "epoch", .y_label = label, .series = {}, .x_ticks = {}};
  plot.is_linear = true;
  return plot;
}

}  // namespace

std::string log_of(const std::string& run) { return file::join_path(run, "log.jsonl"); }

std::string draw_runs(const std::vector<std::string>& runs) {
  constexpr Curve kAccuracies[] = {{"validation_top1", "validation"}, {"test_top1", "test"}};
  constexpr Curve kLosses[] = {
      {"loss", "training"}, {"validation_loss", "validation"}, {"test_loss", "test"}};
  Plot accuracy = over_epochs("accuracy", "top-1, %");
  Plot loss = over_epochs("loss", "loss");
  for (const std::string& run : runs) {
    std::map<std::string, Points> numbers;
    read_log(log_of(run), [&](const Event& event) {
      for (const auto* all : {&event.numbers, &event.metrics})
        for (const auto& [name, value] : *all) numbers[name][event.epoch] = value;
    });
    const std::string of = runs.size() == 1 ? "" : file::base_name(run) + " ";
    for (const Curve& one : kAccuracies) add(accuracy, of, one, numbers[one.number], 100);
    for (const Curve& one : kLosses) add(loss, of, one, numbers[one.number], 1);
  }
  return stack_svg({draw_svg(accuracy), draw_svg(loss)});
}

}  // namespace horon::report
