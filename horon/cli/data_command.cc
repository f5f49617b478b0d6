// horon data: make, convert, verify, stats, show, download, shard.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/signal.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/cli/commands.h"
#include "horon/cli/near_flags.h"
#include "horon/cli/progress.h"
#include "horon/data/download.h"
#include "horon/data/format/convert.h"
#include "horon/data/image/augment.h"
#include "horon/data/image/png.h"
#include "horon/data/open_dataset.h"
#include "horon/data/order.h"
#include "horon/data/survey.h"
#include "horon/file/file.h"

namespace horon::cli {
namespace {

// The flags that select a data set.
struct Source {
  DatasetRequest request;
  int threads = static_cast<int>(usable_cores().size());
};

constexpr uint64_t kMostSamples = uint64_t{1} << 40;

// A whole number in a range: nothing negative turns into something enormous.
CLI::Option* add_count(CLI::App& command, const std::string& flag, uint64_t& value, uint64_t low,
                       uint64_t high, const std::string& about = "") {
  return command.add_option(flag, value, about)->check(CLI::Range(low, high));
}

void add_seed(CLI::App& command, uint64_t& seed, const std::string& about = "") {
  add_count(command, "--seed", seed, 0, INT64_MAX, about)->capture_default_str();
}

void add_source_flags(CLI::App& command, Source& source) {
  std::string names;
  for (const auto& [name, about] : dataset_names())
    names += fmt::format("\n  {:14}{}", name, about);
  command.add_option("--dataset", source.request.name, "kind of data set")->required();
  command.add_option("--data_dir", source.request.folder, "folder with its files");
  command.add_option("--split", source.request.split, "train, validation or test")
      ->capture_default_str();
  add_count(command, "--validation_split", source.request.validation_split, 0, kMostSamples,
            "number of training samples to use as validation set");
  add_count(command, "--samples", source.request.samples, 1, kMostSamples,
            "for shapes10 and synthetic only");
  add_seed(command, source.request.seed, "for shapes10 and synthetic only");
  command
      .add_option("--num_classes", source.request.classes,
                  "number of classes, if the files do not contain it")
      ->check(CLI::Range(1, kMostClasses));
  command.add_option("-j,--threads", source.threads)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.footer("Data sets:" + names);
}

// Threads that write files wait for the disk most of the time: more of them than cores.
int writing_threads() { return std::max(static_cast<int>(usable_cores().size()), 16); }

void convert(const Source& source, ConvertOptions options) {
  const StopOnSignal stop;
  options.split = source.request.split;
  options.threads = source.threads;
  options.stop = stop.token();
  const auto set = open_dataset(source.request);
  std::vector<std::string> files;
  {
    Progress bar("write", Progress::Unit::kItems);
    options.progress = [&](uint64_t done, uint64_t total) { bar.update(done, total); };
    files = convert_dataset(*set, options);
  }
  std::cout << fmt::format("{} samples as {} in {} file(s): {}{}\n", set->size(), options.format,
                           files.size(), files.empty() ? "" : files.front(),
                           files.size() > 1 ? " ..." : "");
}

void verify(const Source& source, Globals& globals) {
  const auto set = open_dataset(source.request);
  VerifyReport report;
  {
    Progress bar("verify", Progress::Unit::kItems);
    report = verify_dataset(*set, source.threads,
                            [&](uint64_t done, uint64_t total) { bar.update(done, total); });
  }
  for (const std::string& problem : report.problems) std::cerr << problem << "\n";
  const uint64_t all = report.bad + report.lost + report.duplicates;
  if (all > report.problems.size())
    std::cerr << fmt::format("... and {} more\n", all - report.problems.size());
  std::cout << fmt::format(
      "{} samples: {} good, {} bad, {} duplicates{}\n", report.samples, report.samples - report.bad,
      report.bad, report.duplicates,
      report.lost > 0 ? fmt::format("; {} file(s) not read to the end", report.lost) : "");
  if (report.bad + report.lost > 0) globals.exit_code = static_cast<int>(ExitCode::kData);
}

void stats(const Source& source, bool as_json) {
  const auto set = open_dataset(source.request);
  Statistics found;
  {
    Progress bar("stats", Progress::Unit::kItems);
    found = measure_dataset(*set, source.threads,
                            [&](uint64_t done, uint64_t total) { bar.update(done, total); });
  }
  const DatasetInfo info = info_with_size(*set);
  const std::string digest = fmt::format("{:016x}", index_digest(*set));
  if (as_json) {
    std::cout << nlohmann::json({{"samples", found.samples},
                                 {"classes", info.classes},
                                 {"mean", found.mean},
                                 {"deviation", found.deviation},
                                 {"histogram", found.histogram},
                                 {"smallest_side", found.smallest_side},
                                 {"largest_side", found.largest_side},
                                 {"memory_bytes", set->memory_bytes()},
                                 {"usual_recipe", usual_recipe(info)},
                                 {"usual_side", usual_side(info)},
                                 {"index_digest", digest}})
                     .dump(1)
              << "\n";
    return;
  }
  std::cout << fmt::format("{} ({}), {} samples, {} classes, sides {} to {}\n", set->info().name,
                           set->info().split, found.samples, set->info().classes,
                           found.smallest_side, found.largest_side);
  std::cout << fmt::format("mean       {:.3f}\ndeviation  {:.3f}\n", fmt::join(found.mean, "  "),
                           fmt::join(found.deviation, "  "));
  std::cout << fmt::format("usually    {} at {} x {}\nin memory  {}\ndigest     {}\n",
                           usual_recipe(info), usual_side(info), usual_side(info),
                           format_bytes(set->memory_bytes()), digest);
  const uint64_t most = *std::max_element(found.histogram.begin(), found.histogram.end());
  for (size_t k = 0; k < found.histogram.size(); ++k) {
    const auto& names = set->info().class_names;
    const auto bar = static_cast<size_t>(40.0 * static_cast<double>(found.histogram[k]) /
                                         static_cast<double>(std::max<uint64_t>(most, 1)));
    std::cout << fmt::format("{:>16} {:>8}  {}\n", k < names.size() ? names[k] : std::to_string(k),
                             found.histogram[k], std::string(bar, '#'));
  }
}

struct ShowFlags {
  std::string out;
  std::string recipe;
  int columns = 12;
  int rows = 8;
  int side = 96;
};

void show(const Source& source, const ShowFlags& flags) {
  require(int64_t{flags.columns} * flags.rows * flags.side * flags.side <= int64_t{1} << 28,
          "--columns, --rows, --side: an image of more than 268 megapixels");
  const auto set = open_dataset(source.request);
  for (const std::string& one : set->losses()) std::cerr << one << "\n";
  file::write(flags.out, encode_png(contact_sheet(*set, flags.columns, flags.rows, flags.side,
                                                  flags.recipe, source.request.seed)));
  std::cout << fmt::format(
      "{}: the first {} of {} samples\n", flags.out,
      std::min<uint64_t>(set->size(), static_cast<uint64_t>(flags.columns * flags.rows)),
      set->size());
}

struct DownloadFlags {
  DownloadOptions options;
  std::string checksum_file;
};

void download(DownloadFlags flags) {
  const StopOnSignal stop;
  flags.options.stop = stop.token();
  if (!flags.checksum_file.empty()) {
    for (const std::string& line : split(file::read(flags.checksum_file, 1U << 20), '\n')) {
      const size_t blank = line.find(' ');
      if (blank == std::string::npos) continue;
      flags.options.checksums[std::string(trim(line.substr(blank)))] = line.substr(0, blank);
    }
  }
  std::vector<std::string> files;
  {
    Progress bar(flags.options.name, Progress::Unit::kBytes);
    flags.options.progress = [&](const std::string&, uint64_t bytes, uint64_t total) {
      bar.update(bytes, total);
    };
    files = download_dataset(flags.options);
  }
  std::cout << fmt::format("{}: {} file(s) in {}; train with --dataset {} --data_dir {}\n",
                           flags.options.name, files.size(), flags.options.folder,
                           flags.options.name, flags.options.folder);
}

struct ShardFlags {
  BatchOptions batching;
  int ranks = 4;
  uint64_t epochs = 1;
  uint64_t seed = 0;
  std::string method;
  bool explains = true;
};

// How often every sample is read, and by whom.
void explain_method(const std::string& name, const ShardFlags& flags) {
  const SplitMethod method = parse_split_method(name);
  std::cout << fmt::format("\n{}\n", name);
  for (uint64_t epoch = 0; epoch < flags.epochs; ++epoch) {
    std::vector<uint32_t> times(flags.batching.samples);
    for (int rank = 0; rank < flags.ranks; ++rank) {
      const auto samples =
          samples_of_rank(method, flags.batching, epoch, flags.seed, rank, flags.ranks);
      for (const uint64_t sample : samples) ++times[sample];
      const auto few = std::span(samples).first(std::min<size_t>(samples.size(), 6));
      if (rank < 8)
        std::cout << fmt::format("  epoch {} rank {}: {:>8} samples: {}{}\n", epoch, rank,
                                 samples.size(), fmt::join(few, " "),
                                 samples.size() > few.size() ? " ..." : "");
    }
    const auto missed = std::count(times.begin(), times.end(), 0U);
    const auto repeated =
        std::count_if(times.begin(), times.end(), [](uint32_t n) { return n > 1; });
    std::cout << fmt::format(
        "  epoch {}: of {} samples {} are missed ({:.1f} %), {} are read more than once\n", epoch,
        flags.batching.samples, missed,
        100.0 * static_cast<double>(missed) /
            static_cast<double>(std::max<uint64_t>(flags.batching.samples, 1)),
        repeated);
  }
}

void explain_shards(const ShardFlags& flags) {
  std::cout << fmt::format("{} samples, global batch {}, {} ranks\n", flags.batching.samples,
                           flags.batching.batch, flags.ranks);
  const std::vector<std::string> methods =
      flags.method.empty() ? split_method_names() : std::vector<std::string>{flags.method};
  for (const std::string& name : methods) explain_method(name, flags);
}

}  // namespace

namespace {

void add_make_and_convert(CLI::App& data) {
  auto source = std::make_shared<Source>();
  auto options = std::make_shared<ConvertOptions>();
  auto* make = data.add_subcommand("make", "Generates shapes10 as files");
  make->add_option("dataset", source->request.name, "shapes10")->capture_default_str();
  source->request.name = "shapes10";
  source->threads = writing_threads();
  options->format = "cifar10";
  make->add_option("--to", options->folder, "folder for the files")->required();
  make->add_option("--format", options->format,
                   "cifar10, npy, image_folder, tfrecord, tfrecord_raw")
      ->capture_default_str();
  make->add_option("--split", source->request.split, "train or test")->capture_default_str();
  add_count(*make, "--samples", source->request.samples, 1, kMostSamples,
            "number of samples; default 10000 (train), 2000 (test)");
  add_seed(*make, source->request.seed);
  make->callback([source, options] {
    require(source->request.name == "shapes10",
            fmt::format("'{}' cannot be generated, only shapes10 can; `horon data convert` writes "
                        "other data sets",
                        source->request.name));
    convert(*source, *options);
  });

  auto from = std::make_shared<Source>();
  from->threads = writing_threads();
  auto to = std::make_shared<ConvertOptions>();
  auto* other = data.add_subcommand(
      "convert", "Writes a data set in another format; resumes an interrupted conversion");
  add_source_flags(*other, *from);
  other->add_option("--to", to->folder, "folder for the files")->required();
  other
      ->add_option("--format", to->format,
                   "tfrecord (ImageNet's schema), tfrecord_raw, image_folder, npy, cifar10")
      ->required();
  other->add_option("--shards", to->files, "number of tfrecord files; 0: one per 1250 samples")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  other->add_option("--quality", to->quality, "JPEG quality")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  other->callback([from, to] { convert(*from, *to); });
}

void add_looking(CLI::App& data, Globals& globals) {
  auto source = std::make_shared<Source>();
  auto* check =
      data.add_subcommand("verify", "Reads and decodes everything: checksums, labels, duplicates");
  add_source_flags(*check, *source);
  check->callback([source, &globals] { verify(*source, globals); });

  auto measured = std::make_shared<Source>();
  auto as_json = std::make_shared<bool>(false);
  auto* numbers =
      data.add_subcommand("stats", "Prints mean, deviation, sizes, samples per class, memory use");
  add_source_flags(*numbers, *measured);
  numbers->add_flag("--json", *as_json, "print as JSON");
  numbers->callback([measured, as_json] { stats(*measured, *as_json); });

  auto shown = std::make_shared<Source>();
  auto flags = std::make_shared<ShowFlags>();
  auto* sheet = data.add_subcommand("show", "Writes a PNG with the first samples side by side");
  add_source_flags(*sheet, *shown);
  sheet->add_option("-o,--output", flags->out, "PNG to write")->required();
  sheet->add_option("--augment", flags->recipe,
                    fmt::format("show the network's input after this recipe: {}",
                                fmt::join(recipe_names(), ", ")));
  sheet->add_option("--columns", flags->columns)->check(CLI::Range(1, 200))->capture_default_str();
  sheet->add_option("--rows", flags->rows)->check(CLI::Range(1, 200))->capture_default_str();
  sheet->add_option("--side", flags->side, "pixels per side of each image")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  sheet->callback([shown, flags] { show(*shown, *flags); });
}

}  // namespace

void add_data_command(CLI::App& app, Globals& globals) {
  auto* data = app.add_subcommand("data", "Data sets: make, convert, verify, show, download");
  add_make_and_convert(*data);
  add_looking(*data, globals);

  auto fetched = std::make_shared<DownloadFlags>();
  auto* get = data->add_subcommand("download", "Downloads a data set, verifies and unpacks it");
  get->add_option("name", fetched->options.name, fmt::format("{}", fmt::join(downloadable(), ", ")))
      ->required();
  get->add_option("--data_dir", fetched->options.folder, "target folder")->required();
  get->add_option("--mirror", fetched->options.mirror,
                  "other source of the files: http(s)://... or a folder");
  get->add_option("--checksum-file", fetched->checksum_file,
                  "expected MD5 of the files, as md5sum prints it");
  get->callback([fetched] { download(*fetched); });

  auto flags = std::make_shared<ShardFlags>();
  auto* shard = data->add_subcommand(
      "shard", "Shows which rank reads what, with Horon's split and those of other programs");
  shard->add_flag("--explain", flags->explains, "show which rank reads what (the default)");
  constexpr uint64_t kMostShown = 100'000'000;
  add_count(*shard, "--samples", flags->batching.samples, 1, kMostShown)->required();
  add_count(*shard, "--batch_size", flags->batching.batch, 1, kMostShown,
            "global batch size, of all ranks together")
      ->required();
  shard->add_option("--ranks", flags->ranks)->check(CLI::Range(1, 4096))->capture_default_str();
  add_count(*shard, "--epochs", flags->epochs, 1, 10'000)->capture_default_str();
  add_seed(*shard, flags->seed);
  shard->add_flag("--drop_remainder", flags->batching.drops_remainder,
                  "skip the last, short batch");
  shard->add_option("--way", flags->method,
                    fmt::format("one of {}; default: all", fmt::join(split_method_names(), ", ")));
  shard->callback([flags] { explain_shards(*flags); });
  name_near_flags(*data);
}

}  // namespace horon::cli
