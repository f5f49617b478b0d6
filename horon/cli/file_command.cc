// cp, ls, cat, rm: files wherever they are.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iostream>

#include "horon/base/error.h"
#include "horon/base/signal.h"
#include "horon/base/text.h"
#include "horon/cli/commands.h"
#include "horon/cli/near_flags.h"
#include "horon/cli/progress.h"
#include "horon/file/copy.h"
#include "horon/file/file.h"

namespace horon::cli {
namespace {

struct CopyFlags {
  std::string from;
  std::string to;
  int threads = 16;
  bool no_verify = false;
};

void copy_files(const CopyFlags& flags, Globals& globals) {
  const StopOnSignal stop;
  file::TreeCopyResult result;
  {
    Progress bar("cp", Progress::Unit::kBytes);
    file::TreeCopyOptions options;
    options.threads = flags.threads;
    options.verifies = !flags.no_verify;
    options.stop = stop.token();
    options.progress = [&](uint64_t bytes, uint64_t total, size_t, size_t) {
      bar.update(bytes, total);
    };
    result = file::copy_parallel(flags.from, flags.to, options);
  }
  std::cout << fmt::format("{} file(s) copied ({}), {} there already, {} failed\n", result.copied,
                           format_bytes(result.bytes), result.skipped, result.failed.size());
  constexpr size_t kMostNamed = 20;
  for (size_t i = 0; i < std::min(result.left_out.size(), kMostNamed); ++i)
    std::cerr << "left out: " << result.left_out[i] << "\n";
  if (result.left_out.size() > kMostNamed)
    std::cerr << fmt::format("left out: {} links in all\n", result.left_out.size());
  for (const std::string& one : result.failed) std::cerr << "failed: " << one << "\n";
  if (!result.failed.empty()) globals.exit_code = static_cast<int>(ExitCode::kFailure);
  if (stop.token().stop_requested()) globals.exit_code = static_cast<int>(ExitCode::kInterrupted);
}

std::string when(int64_t modified_ns) {
  if (modified_ns == 0) return std::string(16, ' ');
  const std::time_t seconds = modified_ns / 1'000'000'000;
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts);
  return text;
}

void list_files(const std::string& path, bool recursive) {
  std::vector<file::FileInfo> entries;
  const auto info = file::stat(path);  // a name may look like a pattern
  if (!info) {
    entries = file::glob(path);
    if (entries.empty()) throw IoError(fmt::format("ls {}: No such file or directory", path));
  } else if (!info->is_folder) {
    entries.push_back(*info);
  } else {
    entries = recursive ? file::list_tree(path) : file::list(path);
  }
  uint64_t bytes = 0;
  for (const file::FileInfo& entry : entries) {
    bytes += entry.bytes;
    const char* mark = entry.leads_nowhere                ? " (a dangling link)"
                       : entry.is_folder && entry.is_link ? "/ (a link)"
                       : entry.is_folder                  ? "/"
                                                          : "";
    std::cout << fmt::format("{:>12}  {}  {}{}\n",
                             entry.is_folder ? "" : std::to_string(entry.bytes),
                             when(entry.modified_ns), entry.path, mark);
  }
  std::cout << fmt::format("{} entries, {}\n", entries.size(), format_bytes(bytes));
}

void remove_files(const std::vector<std::string>& paths, bool recursive) {
  for (const std::string& path : paths) {
    const auto info = file::stat(path);
    if (!info) throw IoError(fmt::format("rm {}: No such file or directory", path));
    if (info->is_folder && !info->is_link && !recursive)
      throw UsageError(
          fmt::format("rm {}: it is a folder; -r removes it with all that is in it", path));
    recursive ? file::remove_tree(path) : file::remove(path);
  }
}

}  // namespace

void add_file_commands(CLI::App& app, Globals& globals) {
  auto* cp = app.add_subcommand(
      "cp", "Copies a file or a folder in parallel, verified; resumes an interrupted copy");
  auto flags = std::make_shared<CopyFlags>();
  cp->add_option("from", flags->from, "file or folder: a path, http(s)://...")->required();
  cp->add_option("to", flags->to, "target; a folder if it exists as one or ends with /")
      ->required();
  cp->add_option("-j,--threads", flags->threads, "files copied at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  cp->add_flag("--no-verify", flags->no_verify, "do not read back and compare what was written");
  cp->footer("Exit code 1: some files failed and are listed; the others were copied.");
  cp->callback([flags, &globals] { copy_files(*flags, globals); });

  auto* ls = app.add_subcommand("ls", "Lists a folder, or files that match a pattern");
  auto where = std::make_shared<std::string>(".");
  auto deep = std::make_shared<bool>(false);
  ls->add_option("path", *where, "folder, file or pattern (* ? [..] **)")->capture_default_str();
  ls->add_flag("-r,--recursive", *deep, "include all files below it");
  ls->callback([where, deep] { list_files(*where, *deep); });

  auto* cat = app.add_subcommand("cat", "Writes files to standard output");
  auto files = std::make_shared<std::vector<std::string>>();
  cat->add_option("files", *files)->required();
  cat->callback([files] {
    for (const std::string& path : *files) {
      file::open(path)->read_all(0, [](std::span<const std::byte> piece) {
        std::cout.write(reinterpret_cast<const char*>(piece.data()),
                        static_cast<std::streamsize>(piece.size()));
        if (!std::cout.flush()) throw IoError("cat: standard output cannot be written");
      });
    }
  });

  auto* rm = app.add_subcommand("rm", "Removes files");
  auto gone = std::make_shared<std::vector<std::string>>();
  auto all = std::make_shared<bool>(false);
  rm->add_option("paths", *gone)->required();
  rm->add_flag("-r,--recursive", *all, "also remove folders and their contents");
  rm->callback([gone, all] { remove_files(*gone, *all); });
  for (CLI::App* command : {cp, ls, cat, rm}) name_near_flags(*command);
}

}  // namespace horon::cli
