// horon plot: the curves of runs as a picture.
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "horon/base/error.h"
#include "horon/cli/commands.h"
#include "horon/cli/record.h"
#include "horon/cli/svg_plot.h"
#include "horon/file/file.h"

namespace horon::cli {
namespace {

struct PlotOptions {
  std::vector<std::string> runs;
  std::string out;
};

// Points of one number over epochs. A run that was resumed may have said a step twice: the last
// counts.
Series read_series(const std::string& run, const std::string& key, double factor,
                   const std::string& name) {
  const std::string path = file::join(run, "log.jsonl");
  if (!file::exists(path)) throw UsageError(fmt::format("{}: there is no log of a run", path));
  std::istringstream lines(file::read(path, uint64_t{1} << 30));
  std::map<double, double> points;
  bool good = false;
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry.contains("epoch")) continue;  // torn by a full disk or a crash
    good = true;
    const auto value = entry.find(key);
    if (value != entry.end() && value->is_number() && entry["epoch"].is_number())
      points[entry["epoch"].get<double>()] = value->get<double>() * factor;
  }
  if (!good) throw UsageError(path + ": no log of a run");
  return {name, {points.begin(), points.end()}};
}

Plot make_plot(const PlotOptions& options, const std::string& title, const std::string& label) {
  Plot plot{.title = title, .x_label = "epoch", .y_label = label, .series = {}, .x_ticks = {}};
  plot.is_linear = true;
  using Keys = std::vector<std::pair<const char*, const char*>>;
  const Keys keys =
      label == "loss"
          ? Keys{{"loss", "training"}, {"validation_loss", "validation"}, {"test_loss", "test"}}
          : Keys{{"validation_top1", "validation"}, {"test_top1", "test"}};
  for (const std::string& run : options.runs) {
    for (const auto& [key, name] : keys) {
      const std::string of = options.runs.size() == 1 ? "" : file::base_name(run) + " ";
      Series series = read_series(run, key, label == "loss" ? 1 : 100, of + name);
      if (!series.points.empty()) plot.series.push_back(std::move(series));
    }
  }
  return plot;
}

}  // namespace

void add_plot_command(CLI::App& app) {
  auto* plot = app.add_subcommand("plot", "Draws accuracy and loss of runs as a picture (SVG)");
  auto options = std::make_shared<PlotOptions>();
  plot->add_option("runs", options->runs, "folders of runs (their --model_dir)")->required();
  plot->add_option("-o,--output", options->out, "default: curves.svg in the first run's folder");
  plot->callback([options] {
    const std::string out =
        options->out.empty() ? file::join(options->runs[0], "curves.svg") : options->out;
    for (const std::string& run : options->runs) check_not_input(out, file::join(run, "log.jsonl"));
    write_file(out, stack_svg({draw_svg(make_plot(*options, "accuracy", "top-1, %")),
                               draw_svg(make_plot(*options, "loss", "loss"))}));
    std::cout << out << "\n";
  });
}

}  // namespace horon::cli
