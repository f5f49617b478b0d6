// horon plot: the curves of runs as a picture.
#include <iostream>

#include "horon/cli/commands.h"
#include "horon/cli/output.h"
#include "horon/file/file.h"
#include "horon/report/curves.h"

namespace horon::cli {
namespace {

struct PlotOptions {
  std::vector<std::string> runs;
  std::string out;
};

}  // namespace

void add_plot_command(CLI::App& app) {
  auto* plot = app.add_subcommand("plot", "Plots accuracy and loss of runs as SVG");
  auto options = std::make_shared<PlotOptions>();
  plot->add_option("runs", options->runs, "folders of runs (their --model_dir)")->required();
  plot->add_option("-o,--output", options->out, "default: curves.svg in the first run's folder");
  plot->callback([options] {
    const std::string out =
        options->out.empty() ? file::join_path(options->runs[0], "curves.svg") : options->out;
    for (const std::string& run : options->runs) check_not_input(out, report::log_of(run));
    write_file(out, report::draw_runs(options->runs));
    std::cout << out << "\n";
  });
}

}  // namespace horon::cli
