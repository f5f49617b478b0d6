#include "horon/base/knob.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/horovod.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr std::string_view kLongest = "365d";  // deadlines that far away do not overflow

constexpr std::array kKnobs = {
    Knob{"backend", KnobType::kWord, "auto",
         "what collectives go over; auto takes shm on one host, hier on several, and nccl around "
         "them if every rank has a GPU of its own",
         "auto self local shm gloo mpi hier nccl"},
    Knob{"cross_backend", KnobType::kWord, "auto",
         "what hier uses between hosts; auto: mpi under mpirun, else gloo", "auto gloo mpi"},
    Knob{"algorithm", KnobType::kWords, "",
         "override of the algorithm table, e.g. `all_reduce=inline` or "
         "`all_reduce=two_shot,broadcast=tree`; see `horon info --algorithms`",
         "all_reduce=inline all_reduce=in_place all_reduce=windows all_reduce=one_shot "
         "all_reduce=two_shot all_reduce=two_level all_reduce=flat all_reduce=native "
         "reduce_scatter=inline reduce_scatter=in_place reduce_scatter=windows "
         "reduce_scatter=one_shot reduce_scatter=flat all_gather=inline all_gather=in_place "
         "all_gather=windows all_gather=one_shot all_gather=flat all_gather=native "
         "broadcast=inline broadcast=in_place broadcast=windows broadcast=tree "
         "broadcast=scatter broadcast=two_level broadcast=flat broadcast=native "
         "all_to_all=in_place all_to_all=windows all_to_all=one_shot all_to_all=flat"},
    Knob{"timeout", KnobType::kDuration, "30s",
         "how long an operation waits without progress before it ends with TimeoutError", "", "1ms",
         kLongest, "HOROVOD_GLOO_TIMEOUT_SECONDS"},
    Knob{"start_timeout", KnobType::kDuration, "30s",
         "how long ranks wait for each other when a communicator is made", "", "1ms", kLongest,
         "HOROVOD_START_TIMEOUT"},
    Knob{"heap_bytes", KnobType::kBytes, "16GB",
         "address space of one rank's shared heap; memory is taken only as buffers are allocated",
         "", "1MB", "16TB"},
    Knob{"inline_bytes", KnobType::kBytes, "64KB",
         "largest message that travels with the arrival flag inside a host", "", "512", "64KB"},
    Knob{"spin", KnobType::kInteger, "auto",
         "microseconds to spin before a wait sleeps; auto: 50 while ranks <= cores, else 2", "auto",
         "0", "1000000"},
    Knob{"host_id", KnobType::kText, "",
         "identity of this host; empty: boot id and namespaces. Ranks with equal ids share memory"},
    Knob{"rendezvous", KnobType::kAddress, "",
         "host:port of the store where ranks meet; set by `horon run`, or by hand with HORON_RANK "
         "and HORON_SIZE: rank 0 then serves there"},
    Knob{"secret_file", KnobType::kText, "",
         "file with the job's secret (mode 0600, `horon secret FILE` makes one); set by `horon "
         "run`"},
    Knob{"insecure", KnobType::kBool, "false",
         "start ranks on several hosts without a secret: everybody who reaches the port may join"},
    Knob{"interface", KnobType::kText, "",
         "network interface or address for connections between hosts; empty: the one over which "
         "this host reached the store, or reaches its peers",
         "", "", "", "HOROVOD_GLOO_IFACE"},
    Knob{"bucket_bytes", KnobType::kBytes, "25MB",
         "tensors are reduced together until they are this large; 0: each alone", "", "0", "1TB",
         "HOROVOD_FUSION_THRESHOLD"},
    Knob{"first_bucket_bytes", KnobType::kBytes, "1MB",
         "the same for the first bucket of a step, so that the wire does not wait long", "", "0",
         "1TB", "HOROVOD_FUSION_THRESHOLD"},
    Knob{"chunk_bytes", KnobType::kBytes, "16MB",
         "larger transfers are cut into pieces of at most this, between which urgent ones "
         "overtake; 0: never",
         "0", "4KB", "1TB"},
    Knob{"stall_warning_time", KnobType::kDuration, "10s",
         "after how long a wait for other ranks is explained: who has not submitted what", "",
         "1ms", kLongest, "HOROVOD_STALL_CHECK_TIME_SECONDS"},
    Knob{"stall_shutdown_time", KnobType::kDuration, "600s",
         "after how long a wait for ranks that are alive but busy ends with TimeoutError; barriers "
         "wait without end",
         "", "1ms", kLongest, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"},
    Knob{"autotune_file", KnobType::kText, "",
         "file: bucket sizes and codec threads are tried on the first steps and the best is kept "
         "there for the next run; empty: off",
         "", "", "", "HOROVOD_AUTOTUNE_LOG HOROVOD_AUTOTUNE"},
    Knob{"timeline", KnobType::kText, "",
         "every rank writes what it does to this path and its rank; `horon trace merge` makes one "
         "file",
         "", "", "", "HOROVOD_TIMELINE"},
    Knob{"flight_folder", KnobType::kText, "",
         "where the last operations are written after an error and on SIGUSR1; empty: TMPDIR"},
    Knob{"parts", KnobType::kText, "",
         "folder with libhoron_*.so; empty: beside libhoron.so, beside the program, in its ../lib "
         "and ../lib/horon, in the installed package"},
    Knob{"log_level", KnobType::kWord, "warn",
         "what is told; trace, warning and fatal are "
         "Horovod's words for debug, warn and error",
         "debug info warn error off trace warning fatal", "", "", "HOROVOD_LOG_LEVEL"},
};

const Knob* find_knob(std::string_view name) {
  const auto found = std::find_if(kKnobs.begin(), kKnobs.end(),
                                  [&](const Knob& knob) { return knob.name == name; });
  return found == kKnobs.end() ? nullptr : &*found;
}

std::string lower(std::string_view text) {
  std::string word(trim(text));
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return word;
}

bool parse_bool(std::string_view text) {
  for (std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  throw UsageError(fmt::format("'{}' is neither true nor false", text));
}

void check_word(const Knob& knob, const std::string& word) {
  const std::vector<std::string> words = split(knob.words, ' ');
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  const std::string close = nearest(word, words);
  throw UsageError(fmt::format("'{}' is not one of {}{}", word, knob_allowed(knob),
                               close.empty() ? "" : fmt::format("; did you mean '{}'?", close)));
}

template <typename T>
void check_range(const Knob& knob, std::string_view value, T (*parse)(std::string_view)) {
  std::string wrong = fmt::format("'{}'", value);
  try {
    const T number = parse(value);
    if (parse(knob.low) <= number && number <= parse(knob.high)) return;
  } catch (const UsageError& error) {
    wrong = error.what();
  }
  throw UsageError(fmt::format("{}: allowed is {}", wrong, knob_allowed(knob)));
}

int64_t parse_whole(std::string_view text) {
  const auto number = parse_number(trim(text));
  require(number && std::abs(*number) < 1e15 && *number == std::floor(*number),
          fmt::format("'{}' is not a whole number", text));
  return static_cast<int64_t>(*number);
}

void check_address(const std::string& value) {
  for (const std::string& one : split(value, ',')) {
    const size_t colon = one.rfind(':');
    require(colon != one.npos && colon > 0, fmt::format("'{}' is not host:port", one));
    const auto port = parse_number(one.substr(colon + 1));
    require(port && *port >= 1 && *port <= 65535, fmt::format("'{}' has no good port", one));
  }
}

struct Line {
  std::string name;
  std::string value;
  std::string where;  // file:line
};

std::vector<Line> read_settings(const std::string& path) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path))
    throw UsageError(fmt::format("cannot read the settings file '{}'", path));
  std::vector<Line> lines;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    const std::string where = fmt::format("{}:{}", path, number);
    const std::string_view body = trim(text);
    if (body.empty() || body.front() == '#') continue;
    const size_t equals = body.find('=');
    require(equals != std::string_view::npos,
            fmt::format("{}: expected 'name = value', got '{}'", where, body));
    lines.push_back({std::string(trim(body.substr(0, equals))),
                     unquote(body.substr(equals + 1), where), where});
  }
  return lines;
}

}  // namespace

std::span<const Knob> knob_table() { return kKnobs; }

std::vector<std::string> knob_words(std::string_view name) {
  const Knob* knob = find_knob(name);
  return knob == nullptr ? std::vector<std::string>() : split(knob->words, ' ');
}

std::string knob_allowed(const Knob& knob) {
  if (knob.type == KnobType::kBool) return "true or false";
  if (knob.type == KnobType::kAddress) return "host:port";
  const std::string words = fmt::format("{}", fmt::join(split(knob.words, ' '), ", "));
  if (knob.low.empty()) return words;
  return fmt::format("{} to {}{}{}", knob.low, knob.high, words.empty() ? "" : ", or ", words);
}

std::string check_knob(const Knob& knob, std::string_view value) {
  const std::string word = lower(value);
  for (const std::string& allowed_word : split(knob.words, ' ')) {
    if (word == allowed_word) return word;
  }
  switch (knob.type) {
    case KnobType::kText:
      return std::string(value);
    case KnobType::kAddress:
      check_address(std::string(value));
      return std::string(value);
    case KnobType::kWord:
      check_word(knob, word);
      return word;
    case KnobType::kWords:
      for (const std::string& one : split(word, ',')) check_word(knob, one);
      return fmt::format("{}", fmt::join(split(word, ','), ","));
    case KnobType::kInteger:
      check_range(knob, value, parse_whole);
      return std::to_string(parse_whole(value));
    case KnobType::kBytes:
      check_range(knob, value, parse_bytes);
      return std::string(trim(value));
    case KnobType::kDuration:
      check_range(knob, value, parse_duration);
      return std::string(trim(value));
    case KnobType::kBool:
      return parse_bool(word) ? "true" : "false";
  }
  return "";
}

std::string knob_env(std::string_view name) {
  std::string env = "HORON_" + std::string(name);
  std::transform(env.begin(), env.end(), env.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return env;
}

std::string knob_flag(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string knob_docs() {
  std::string text =
      "# Settings\n\nGenerated by `horon info --knobs-md`. The first that is given counts: command "
      "line, environment, file (`--config FILE` or `HORON_CONFIG`, lines `name = value`), "
      "Horovod's "
      "variable (in Horovod's units; one without a meaning here is named by rank 0), default. "
      "Words may be\nwritten in any case; in a file quotes may stand around values. A value that "
      "is "
      "not allowed is an error that names the flag, the variable, or file and line.\n\n"
      "| name | flag | environment | default | allowed | what it does "
      "|\n|---|---|---|---|---|---|\n";
  const auto code = [](std::string_view value) {
    return value.empty() ? std::string() : fmt::format("`{}`", value);
  };
  for (const Knob& knob : kKnobs) {
    std::string variables = code(knob_env(knob.name));
    for (const std::string& also : split(knob.horovod, ' ')) variables += ", " + code(also);
    text += fmt::format("| `{}` | `{}` | {} | {} | {} | {} |\n", knob.name, knob_flag(knob.name),
                        variables, code(knob.fallback), knob_allowed(knob), knob.help);
  }
  return text;
}

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

Knobs::Knobs() {
  for (const Knob& knob : kKnobs) {
    values_[std::string(knob.name)] = {std::string(knob.fallback), "default"};
  }
}

Knobs Knobs::resolve(const std::map<std::string, std::string>& flags, const EnvLookup& env,
                     const std::string& file) {
  Knobs knobs;
  for (const Knob& knob : kKnobs) {
    for (std::string_view rest = knob.horovod; !rest.empty();) {
      const std::string_view variable = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(variable.size() + 1, rest.size()));
      const auto value = read_horovod(knob, variable, env(std::string(variable)).value_or(""));
      if (!value) continue;
      knobs.put(std::string(knob.name), *value, variable,
                fmt::format("{} (environment)", variable));
      break;
    }
  }
  const std::string path = file.empty() ? env("HORON_CONFIG").value_or("") : file;
  if (!path.empty()) {
    for (const Line& line : read_settings(path))
      knobs.put(line.name, line.value, "file", fmt::format("{}: {}", line.where, line.name));
  }
  const auto from_environment = [&](std::string_view name) {
    const std::string variable = knob_env(name);
    if (const auto value = env(variable))
      knobs.put(std::string(name), *value, "environment", variable + " (environment)");
  };
  for (const Knob& knob : kKnobs) from_environment(knob.name);
  from_environment(kNoKnob);
  for (const auto& [name, value] : flags) knobs.put(name, value, "command line", knob_flag(name));
  return knobs;
}

void Knobs::set(const std::string& name, const std::string& value, std::string_view origin) {
  put(name, value, origin, fmt::format("setting '{}' ({})", name, origin));
}

void Knobs::put(const std::string& name, const std::string& value, std::string_view origin,
                const std::string& where) {
  const Knob* knob = find_knob(name);
  if (knob == nullptr) {
    require(name != kNoKnob, fmt::format("{}: this is no setting; say it where sums are made: "
                                         "`horon run ... horon train --reduction exact`, or "
                                         "ReduceOptions in a program",
                                         where));
    std::vector<std::string> names;
    for (const Knob& known : kKnobs) names.emplace_back(known.name);
    const std::string close = nearest(name, names);
    throw UsageError(fmt::format(
        "{}: unknown setting '{}'{}", where, name,
        close.empty() ? "; see `horon info --knobs`" : fmt::format("; did you mean '{}'?", close)));
  }
  try {
    values_[name] = {check_knob(*knob, value), origin};
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", where, error.what()));
  }
}

const Knobs::Value& Knobs::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw UsageError(fmt::format("unknown setting '{}'", name));
  return found->second;
}

const std::string& Knobs::text(std::string_view name) const { return find(name).text; }
int64_t Knobs::integer(std::string_view name) const { return parse_whole(find(name).text); }
uint64_t Knobs::bytes(std::string_view name) const { return parse_bytes(find(name).text); }
Milliseconds Knobs::duration(std::string_view name) const {
  return parse_duration(find(name).text);
}
bool Knobs::flag(std::string_view name) const { return parse_bool(find(name).text); }
std::string_view Knobs::origin(std::string_view name) const { return find(name).origin; }

}  // namespace horon
