#include <fmt/format.h>

#include <iostream>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/cli/commands.h"
#include "horon/cli/output.h"
#include "horon/runtime/trace.h"

namespace horon::cli {

void add_trace_command(CLI::App& app) {
  auto* trace = app.add_subcommand("trace", "Works with timelines of a job's ranks");
  trace->require_subcommand(1);
  auto* merge = trace->add_subcommand("merge",
                                      "Combines the timelines of all ranks into one file, for "
                                      "https://ui.perfetto.dev or chrome://tracing");
  struct Options {
    std::string out;
    std::vector<std::string> files;
  };
  auto options = std::make_shared<Options>();
  merge->add_option("-o,--output", options->out, "file to write")->required();
  merge->add_option("files", options->files, "timelines of the ranks: timeline.0 timeline.1 ...")
      ->required();
  merge->callback([options] {
    std::vector<TimelineText> timelines;
    for (const std::string& path : options->files) {
      check_not_input(options->out, path);
      timelines.push_back({path, read_small_file(path, 4ULL << 30)});
    }
    std::vector<std::string> notes;
    write_file(options->out, merge_timelines(timelines, &notes));
    for (const std::string& note : notes) std::cerr << "horon trace merge: " << note << "\n";
    std::cout << fmt::format("{}: {} rank(s)\n", options->out, timelines.size());
  });
}

}  // namespace horon::cli
