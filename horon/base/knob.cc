#include "horon/base/knob.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr std::array<Knob, 24> kKnobs = {{
    {"backend", KnobType::kText, "auto",
     "collectives over: auto, self, local, shm, gloo, mpi, hier or nccl; auto takes shm on one "
     "host, "
     "hier on several"},
    {"cross_backend", KnobType::kText, "auto",
     "what hier uses between hosts: gloo, mpi, or auto (mpi under mpirun, else gloo)"},
    {"reduction", KnobType::kText, "fast",
     "fast: same bits from run to run on the same number of ranks; exact: same bits on any number"},
    {"algorithm", KnobType::kText, "",
     "override of the algorithm table, e.g. all_reduce=inline or all_reduce=direct,broadcast=flat; "
     "see `horon info --algorithms`"},
    {"timeout", KnobType::kDuration, "30s",
     "how long an operation waits without progress before it ends with TimeoutError"},
    {"start_timeout", KnobType::kDuration, "30s",
     "how long ranks wait for each other when a communicator is made"},
    {"heap_bytes", KnobType::kBytes, "16GB",
     "address space of one rank's shared heap; memory is taken only as buffers are allocated"},
    {"inline_bytes", KnobType::kBytes, "64KB",
     "largest message that travels with the arrival flag inside a host (at most 64KB)"},
    {"spin", KnobType::kText, "auto",
     "microseconds to spin before a wait sleeps; auto: 50 while ranks <= cores, else 2"},
    {"host_id", KnobType::kText, "",
     "identity of this host; empty: boot id and namespaces. Ranks with equal ids share memory"},
    {"rendezvous", KnobType::kText, "",
     "host:port of the store where ranks meet; set by `horon run`, or by hand with HORON_RANK and "
     "HORON_SIZE: rank 0 then serves there"},
    {"secret_file", KnobType::kText, "",
     "file with the job's secret (mode 0600, `horon secret FILE` makes one); set by `horon run`"},
    {"insecure", KnobType::kBool, "false",
     "start ranks on several hosts without a secret: everybody who reaches the port may join"},
    {"interface", KnobType::kText, "",
     "network interface or address for connections between hosts; empty: the one over which this "
     "host reached the store, or reaches its peers"},
    {"bucket_bytes", KnobType::kBytes, "25MB",
     "tensors are reduced together until they are this large"},
    {"first_bucket_bytes", KnobType::kBytes, "1MB",
     "the same for the first bucket of a step, so that the wire does not wait long"},
    {"chunk_bytes", KnobType::kBytes, "16MB",
     "larger transfers are cut into pieces of at most this, between which urgent ones overtake"},
    {"stall_warning_time", KnobType::kDuration, "10s",
     "after how long a wait for other ranks is explained: who has not submitted what"},
    {"stall_shutdown_time", KnobType::kDuration, "600s",
     "after how long a wait for ranks that are alive but busy ends with TimeoutError; barriers "
     "wait "
     "without end"},
    {"autotune_file", KnobType::kText, "",
     "file: bucket sizes and codec threads are tried on the first steps and the best is kept there "
     "for the next run; "
     "empty: off"},
    {"timeline", KnobType::kText, "",
     "every rank writes what it does to this path and its rank; `horon trace merge` makes one "
     "file"},
    {"flight_folder", KnobType::kText, "",
     "where the last operations are written after an error and on SIGUSR1; empty: TMPDIR"},
    {"parts", KnobType::kText, "",
     "folder with libhoron_*.so; empty: beside libhoron.so, beside the program, in its ../lib and "
     "../lib/horon, in the installed package"},
    {"log_level", KnobType::kText, "warn", "debug, info, warn, error or off"},
}};

const Knob* find_knob(std::string_view name) {
  const auto found = std::find_if(kKnobs.begin(), kKnobs.end(),
                                  [&](const Knob& knob) { return knob.name == name; });
  return found == kKnobs.end() ? nullptr : &*found;
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

void check_value(const Knob& knob, const std::string& value) {
  switch (knob.type) {
    case KnobType::kText:
      return;
    case KnobType::kInteger:
      parse_integer(value, knob.name, std::numeric_limits<int64_t>::min(),
                    std::numeric_limits<int64_t>::max());
      return;
    case KnobType::kBytes:
      parse_bytes(value);
      return;
    case KnobType::kDuration:
      parse_duration(value);
      return;
    case KnobType::kBool:
      parse_bool(value);
      return;
  }
}

std::map<std::string, std::string> read_settings(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw UsageError(fmt::format("cannot read the settings file '{}'", path));
  std::map<std::string, std::string> values;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string_view body = trim(std::string_view(line).substr(0, line.find('#')));
    if (body.empty()) continue;
    const size_t equals = body.find('=');
    if (equals == std::string_view::npos) {
      throw UsageError(fmt::format("{}:{}: expected 'name = value', got '{}'", path, number, body));
    }
    values[std::string(trim(body.substr(0, equals)))] = std::string(trim(body.substr(equals + 1)));
  }
  return values;
}

}  // namespace

std::span<const Knob> knob_table() { return kKnobs; }

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
      "line, "
      "environment, file (`--config FILE` or `HORON_CONFIG`, lines `name = value`), default.\n\n"
      "| name | flag | environment | default | what it does |\n|---|---|---|---|---|\n";
  for (const Knob& knob : kKnobs) {
    const std::string shown = knob.fallback.empty() ? "" : fmt::format("`{}`", knob.fallback);
    text += fmt::format("| `{}` | `{}` | `{}` | {} | {} |\n", knob.name, knob_flag(knob.name),
                        knob_env(knob.name), shown, knob.help);
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
  if (!file.empty()) {
    for (const auto& [name, value] : read_settings(file)) knobs.set(name, value, "file");
  }
  for (const Knob& knob : kKnobs) {
    if (auto value = env(knob_env(knob.name))) {
      knobs.set(std::string(knob.name), *value, "environment");
    }
  }
  for (const auto& [name, value] : flags) knobs.set(name, value, "command line");
  return knobs;
}

void Knobs::set(const std::string& name, const std::string& value, std::string_view origin) {
  const Knob* knob = find_knob(name);
  if (knob == nullptr) {
    std::vector<std::string> names;
    for (const Knob& known : kKnobs) names.emplace_back(known.name);
    const std::string close = nearest(name, names);
    throw UsageError(fmt::format(
        "unknown setting '{}' ({}){}", name, origin,
        close.empty() ? "; see `horon info --knobs`" : fmt::format("; did you mean '{}'?", close)));
  }
  try {
    check_value(*knob, value);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("setting '{}' ({}): {}", name, origin, error.what()));
  }
  values_[name] = {value, origin};
}

const Knobs::Value& Knobs::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw UsageError(fmt::format("unknown setting '{}'", name));
  return found->second;
}

const std::string& Knobs::text(std::string_view name) const { return find(name).text; }
int64_t Knobs::integer(std::string_view name) const {
  return parse_integer(find(name).text, name, std::numeric_limits<int64_t>::min(),
                       std::numeric_limits<int64_t>::max());
}
uint64_t Knobs::bytes(std::string_view name) const { return parse_bytes(find(name).text); }
Milliseconds Knobs::duration(std::string_view name) const {
  return parse_duration(find(name).text);
}
bool Knobs::flag(std::string_view name) const { return parse_bool(find(name).text); }
std::string_view Knobs::origin(std::string_view name) const { return find(name).origin; }

}  // namespace horon
