#include "horon/cli/run_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/setting.h"
#include "horon/base/text.h"
#include "horon/cli/spelling.h"

namespace horon::cli {
namespace {

struct OldFlag {
  const char* names;
  int values;  // that follow it
  const char* why;
  double low = 0;  // of its value, a number
  double high = 0;
};

constexpr const char* kNoCycle = "there is no polling cycle";
constexpr const char* kNoTuning = "a few bucket sizes are tried and the best is kept";
constexpr const char* kStall = "stalled ranks are always detected and named; see --timeout";

constexpr std::array kNoted = {
    OldFlag{"--disable-cache", 0, "nothing is stored between runs"},
    OldFlag{"--cycle-time-ms", 1, kNoCycle, 0, 1e6},
    OldFlag{"--cache-capacity", 1, "steady state needs no negotiation, so there is no cache", 0,
            1e9},
    OldFlag{"--hierarchical-allreduce", 0, "several hosts always reduce in two levels"},
    OldFlag{"--hierarchical-allgather,--no-hierarchical-allgather", 0,
            "chosen from the table of algorithms"},
    OldFlag{"--torus-allreduce,--no-torus-allreduce", 0, "chosen from the table of algorithms"},
    OldFlag{"--no-autotune", 0, "tuning is off by default"},
    OldFlag{"--autotune-warmup-samples", 1, kNoTuning, 0, 1e6},
    OldFlag{"--autotune-steps-per-sample", 1, kNoTuning, 1, 1e6},
    OldFlag{"--autotune-bayes-opt-max-samples", 1, kNoTuning, 1, 1e6},
    OldFlag{"--autotune-gaussian-process-noise", 1, kNoTuning, 0, 1},
    OldFlag{"--timeline-mark-cycles,--no-timeline-mark-cycles", 0, kNoCycle},
    OldFlag{"--stall-check,--no-stall-check", 0, kStall},
    OldFlag{"--mpi-threads-disable,--no-mpi-threads-disable", 0, "MPI is always used with threads"},
    OldFlag{"--tcp", 0, "pass it to mpirun with --mpi-args"},
    OldFlag{"--num-nccl-streams", 1, "one stream is enough", 1, 1024},
    OldFlag{"--thread-affinity", 1, "each rank is bound to its own cores; --no-bind turns this off",
            0, 1e6},
    OldFlag{"--log-with-timestamp,--log-without-timestamp", 0, "log lines always contain the time"},
    OldFlag{"--log-hide-timestamp,--no-log-hide-timestamp", 0, "log lines always contain the time"},
};

constexpr const char* kElastic = "elastic jobs are not implemented yet";
constexpr std::array kRefused = {
    OldFlag{"--min-np,--min-num-proc", 1, kElastic},
    OldFlag{"--max-np,--max-num-proc", 1, kElastic},
    OldFlag{"--slots-per-host", 1, kElastic},
    OldFlag{"--elastic-timeout", 1, kElastic},
    OldFlag{"--reset-limit", 1, kElastic},
    OldFlag{"--blacklist-cooldown-range", 2, kElastic},
    OldFlag{"--host-discovery-script", 1, kElastic},
    OldFlag{"--jsrun", 0, "LSF is not supported; start the ranks with mpirun or --mpi"},
};

std::string first_name(const OldFlag& flag) {
  const std::string names = flag.names;
  return names.substr(0, names.find(','));
}

// A word of the command line: a flag and its value in the same word.
struct Word {
  std::string name;
  std::optional<std::string> value;
};

Word read_word(const std::string& word) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const auto value = equals == word.npos ? std::nullopt : std::optional(word.substr(equals + 1));
  if (name == "-np") return {"--np", value};
  if (name == "-cb") return {"--check-build", value};
  if (name == "-hostfile") return {"--hostfile", value};
  if (name == "-prefix-timestamp") return {"--prefix-output-with-timestamp", value};
  if (name.starts_with("--") || name.size() == 2) return {name, value};
  return {word.substr(0, 2), word.substr(2)};  // -n2
}

CLI::Option& find_option(CLI::App& run, const std::string& flag, const std::string& complaint) {
  if (CLI::Option* option = run.get_option_no_throw(spell_flag(run, flag))) return *option;
  if (const Setting* setting = look_up_setting(flag); setting != nullptr)
    throw UsageError(fmt::format("{}: a setting of the trainer ({}); put it after `horon train`",
                                 complaint, setting->help));
  std::vector<std::string> known;
  for (const CLI::Option* option : run.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string close = nearest(flag, known);
  throw UsageError(complaint + (close.empty() ? "; see `horon run --help`"
                                              : fmt::format("; did you mean {}?", close)));
}

// Why the value is not allowed; empty if it is.
std::string complaint_about(CLI::Option& option, const std::string& flag, std::string value) {
  try {
    if (look_up_setting(flag) != nullptr) read_setting(flag, value, "");
    return (*option.get_validator())(value);
  } catch (const UsageError& error) {
    return error.what();
  } catch (const CLI::OptionNotFound&) {  // it has no check of its own
    return "";
  }
}

std::optional<bool> read_switch(std::string value) {
  for (char& c : value) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (value == "true" || value == "yes" || value == "on") return true;
  if (value == "false" || value == "no" || value == "off") return false;
  return std::nullopt;
}

// The flag for "section" and "name" of a configuration file.
std::string flag_of(const std::string& section, const std::string& name) {
  if (section == "autotune" || section == "stall-check")
    return name == "enabled" ? "--" + section : "--" + section + "-" + name;
  if (section == "timeline") return "--timeline-" + name;
  if (section == "logging") return "--log-" + name;
  return "--" + name;
}

const std::set<std::string> kSections = {"params",      "autotune",        "timeline",
                                         "stall-check", "library-options", "logging"};

// One `name: value` of a configuration file as words of the command line.
std::vector<std::string> words_of(CLI::App& run, const std::string& flag, const std::string& value,
                                  const std::string& where) {
  CLI::Option& option = find_option(run, flag, fmt::format("{}: unknown flag {}", where, flag));
  if (option.get_items_expected_max() == 0) {
    const auto yes = read_switch(value);
    require(yes.has_value(), fmt::format("{}: '{}' is neither true nor false", where, value));
    return *yes ? std::vector{flag} : std::vector<std::string>();  // off unless given
  }
  const std::string wrong = complaint_about(option, flag, value);
  require(wrong.empty(), fmt::format("{}: {}", where, wrong));
  if (option.get_items_expected_min() == 0) return {flag + "=" + value};
  return {flag, value};
}

}  // namespace

std::function<std::string(const std::string&)> number_from(double low, double high) {
  return [=](const std::string& text) {
    const auto number = parse_number(text);
    if (number && *number >= low && *number <= high) return std::string();
    return fmt::format("'{}' is not a number from {} to {}", text, low, high);
  };
}

std::string not_empty(const std::string& text) { return text.empty() ? "'' is empty" : ""; }

std::vector<std::string> flags_of_config(CLI::App& run, std::string_view text,
                                         std::string_view path) {
  std::vector<std::string> flags;
  std::string section;
  int number = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = text.substr(start, end - start);
    start = end + 1;
    ++number;
    const std::string_view body = trim(line);
    if (body.empty() || body.front() == '#' || body == "---") continue;
    const std::string place = fmt::format("{}:{}", path, number);
    const size_t colon = body.find(':');
    require(colon != body.npos && colon > 0 && body.front() != '-',
            fmt::format("{}: expected 'name: value', got '{}'", place, body));
    const std::string given(trim(body.substr(0, colon)));
    const std::string where = fmt::format("{}: {}", place, given);
    std::string name = given;
    std::replace(name.begin(), name.end(), '_', '-');
    if (line.front() != ' ' && line.front() != '\t') section.clear();
    const std::string_view rest = trim(body.substr(colon + 1));
    if (rest.empty() || rest.front() == '#') {
      require(kSections.contains(name), fmt::format("{}: neither a section ({}) nor 'name: value'",
                                                    where, fmt::join(kSections, ", ")));
      section = name;
      continue;
    }
    const std::string value = unquote(rest, place);
    const std::string flag = name == "controller" ? "--" + value : flag_of(section, name);
    require(flag != "--config-file", where + ": one file does not name another");
    const auto words = words_of(run, flag, name == "controller" ? "true" : value, where);
    flags.insert(flags.end(), words.begin(), words.end());
  }
  return flags;
}

std::string read_named_file(std::string_view flag, const std::string& path) {
  try {
    return read_small_file(path);
  } catch (const IoError& error) {
    throw UsageError(fmt::format("{}: {}", flag, error.what()));
  }
}

SplitArguments split_run_arguments(CLI::App& run, const std::vector<std::string>& arguments) {
  SplitArguments result;
  std::vector<std::string> from_file;
  size_t at = 0;
  while (at < arguments.size()) {
    const std::string& word = arguments[at];
    if (word.empty() || word == "-" || word.front() != '-') break;
    ++at;
    if (word == "--") break;
    Word read = read_word(word);
    read.name = spell_flag(run, read.name);
    const CLI::Option& option =
        find_option(run, read.name, fmt::format("horon run: unknown flag '{}'", word));
    const int least = option.get_items_expected_min();
    const int most = option.get_items_expected_max();
    const bool has_more = at + 1 < arguments.size();
    if (least < most && !read.value && has_more &&
        (arguments[at] == "true" || arguments[at] == "false"))
      read.value = arguments[at++];  // else it is the program
    std::vector<std::string> words = {read.name};
    if (read.value && least == 0) words.back() += "=" + *read.value;
    if (read.value && least > 0) words.push_back(*read.value);
    const int follow = read.value ? 0 : least;
    for (int i = 0; i < follow && at < arguments.size(); ++i) words.push_back(arguments[at++]);
    if (read.name == "--config-file" && words.size() > 1) {
      for (std::string& flag :
           flags_of_config(run, read_named_file("--config-file", words[1]), words[1]))
        from_file.push_back(std::move(flag));
    } else {
      result.flags.insert(result.flags.end(), words.begin(), words.end());
    }
  }
  result.flags.insert(result.flags.begin(), from_file.begin(), from_file.end());
  result.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return result;
}

void add_horovod_flags(CLI::App& run, std::vector<std::string>& notes) {
  const auto add = [&](const OldFlag& flag, const char* group, auto&& action) {
    const std::string help = flag.why;
    CLI::Option* option =
        flag.values == 0
            ? run.add_flag_function(
                  flag.names, [action](int64_t) { action(); }, help)
            : run.add_option_function<std::vector<std::string>>(
                  flag.names, [action](const std::vector<std::string>&) { action(); }, help);
    if (flag.values > 0) option->expected(flag.values);
    if (flag.high > 0) option->check(number_from(flag.low, flag.high), "");
    option->group(group);
  };
  for (const OldFlag& flag : kNoted) {
    add(flag, "Horovod flags without effect", [&notes, flag] {
      notes.push_back(fmt::format("{}: nothing to do, {}", first_name(flag), flag.why));
    });
  }
  for (const OldFlag& flag : kRefused) {
    add(flag, "Horovod flags that are not supported",
        [flag] { throw UsageError(fmt::format("{}: {}", first_name(flag), flag.why)); });
  }
}

}  // namespace horon::cli
