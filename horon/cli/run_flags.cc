#include "horon/cli/run_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/text.h"

namespace horon::cli {
namespace {

struct OldFlag {
  const char* names;
  int values;  // that follow it
  const char* why;
};

constexpr const char* kNoCycle = "there is no polling cycle";
constexpr const char* kNoTuning = "a few sizes of buckets are tried, and the best is kept";
constexpr const char* kStall = "a rank that waits is always watched and named; see --timeout";

constexpr std::array kNoted = {
    OldFlag{"--disable-cache", 0, "nothing is remembered between runs"},
    OldFlag{"--cycle-time-ms", 1, kNoCycle},
    OldFlag{"--cache-capacity", 1, "steady state negotiates nothing, so nothing is cached"},
    OldFlag{"--hierarchical-allreduce", 0, "several hosts are always reduced in two levels"},
    OldFlag{"--hierarchical-allgather,--no-hierarchical-allgather", 0, "chosen by the table"},
    OldFlag{"--torus-allreduce,--no-torus-allreduce", 0, "chosen by the table"},
    OldFlag{"--no-autotune", 0, "nothing is tuned unless asked for"},
    OldFlag{"--autotune-warmup-samples", 1, kNoTuning},
    OldFlag{"--autotune-steps-per-sample", 1, kNoTuning},
    OldFlag{"--autotune-bayes-opt-max-samples", 1, kNoTuning},
    OldFlag{"--autotune-gaussian-process-noise", 1, kNoTuning},
    OldFlag{"--timeline-mark-cycles,--no-timeline-mark-cycles", 0, kNoCycle},
    OldFlag{"--stall-check,--no-stall-check", 0, kStall},
    OldFlag{"--mpi-threads-disable,--no-mpi-threads-disable", 0, "MPI is always used with threads"},
    OldFlag{"--tcp", 0, "mpirun takes such choices through --mpi-args"},
    OldFlag{"--num-nccl-streams", 1, "one stream is enough"},
    OldFlag{"--thread-affinity", 1, "ranks get shares of the cores; --no-bind turns that off"},
    OldFlag{"--log-with-timestamp,--log-without-timestamp", 0, "log lines always carry the time"},
    OldFlag{"--log-hide-timestamp,--no-log-hide-timestamp", 0, "log lines always carry the time"},
};

constexpr const char* kElastic = "jobs that change their size are not there yet";
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

std::string normal_spelling(const std::string& word) {
  if (word == "-np") return "--np";
  if (word == "-cb") return "--check-build";
  if (word == "-hostfile") return "--hostfile";
  if (word == "-prefix-timestamp") return "--prefix-output-with-timestamp";
  return word;
}

// Words that follow the flag as its values.
int values_of(const CLI::App& run, const std::string& word) {
  const bool is_short = word.size() > 1 && word[1] != '-';
  const std::string name = is_short ? word.substr(0, 2) : word.substr(0, word.find('='));
  const CLI::Option* option = run.get_option_no_throw(name);
  if (option == nullptr)
    throw UsageError(fmt::format("horon run: unknown flag '{}'; see --help", word));
  const bool has_own = is_short ? word.size() > 2 : word.find('=') != std::string::npos;
  return has_own ? 0 : option->get_items_expected_min();
}

// "section" and "name" of a configuration file as the flag that it means.
std::string flag_of(const std::string& section, std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  if (section == "autotune" || section == "stall-check")
    return name == "enabled" ? "--" + section : "--" + section + "-" + name;
  if (section == "timeline") return "--timeline-" + name;
  if (section == "logging") return "--log-" + name;
  return "--" + name;
}

}  // namespace

std::vector<std::string> flags_of_config(std::string_view text, std::string_view path) {
  std::vector<std::string> flags;
  std::string section;
  int number = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line =
        text.substr(start, end - start).substr(0, text.substr(start, end - start).find('#'));
    start = end + 1;
    ++number;
    const std::string_view body = trim(line);
    if (body.empty() || body == "---") continue;
    const size_t colon = body.find(':');
    require(colon != body.npos && colon > 0 && body.front() != '-',
            fmt::format("{}:{}: expected 'name: value', got '{}'", path, number, body));
    std::string name(trim(body.substr(0, colon)));
    std::string value(trim(body.substr(colon + 1)));
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
        value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    const bool nested = line.front() == ' ' || line.front() == '\t';
    if (!nested) section.clear();
    if (value.empty()) {
      section = name;
      std::replace(section.begin(), section.end(), '_', '-');
      continue;
    }
    if (name == "controller") {
      flags.push_back("--" + value);
      continue;
    }
    const std::string flag = flag_of(section, name);
    const bool yes = value == "true" || value == "True" || value == "yes";
    const bool no = value == "false" || value == "False" || value == "no";
    if (yes) flags.push_back(flag);
    if (no) continue;  // every switch is off unless given
    if (!yes) flags.insert(flags.end(), {flag, value});
  }
  return flags;
}

RunArguments split_run_arguments(const CLI::App& run, const std::vector<std::string>& arguments) {
  RunArguments result;
  std::vector<std::string> from_file;
  size_t at = 0;
  while (at < arguments.size()) {
    const std::string word = normal_spelling(arguments[at]);
    if (word.empty() || word == "-" || word.front() != '-') break;
    ++at;
    if (word == "--") break;
    const int values = values_of(run, word);
    std::vector<std::string> words = {word};
    for (int i = 0; i < values && at < arguments.size(); ++i) words.push_back(arguments[at++]);
    const bool is_file = word == "--config-file" || word.starts_with("--config-file=");
    if (is_file) {
      const std::string path = words.size() > 1 ? words[1] : word.substr(word.find('=') + 1);
      for (std::string& flag : flags_of_config(read_small_file(path), path))
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
    option->group(group);
  };
  for (const OldFlag& flag : kNoted) {
    add(flag, "Horovod's flags that need nothing here", [&notes, flag] {
      notes.push_back(fmt::format("{}: nothing to do, {}", first_name(flag), flag.why));
    });
  }
  for (const OldFlag& flag : kRefused) {
    add(flag, "Horovod's flags that do not work here",
        [flag] { throw UsageError(fmt::format("{}: {}", first_name(flag), flag.why)); });
  }
}

}  // namespace horon::cli
