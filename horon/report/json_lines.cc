#include "horon/report/json_lines.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "horon/base/error.h"
#include "horon/file/file.h"

namespace horon::report {
namespace {

// Of a step the log has these; how fast it goes is for people.
constexpr std::array kOfAStep = {"loss", "top1", "learning_rate", "seconds"};

EventKind kind_of(const Event& event) {
  if (event.numbers.contains("learning_rate")) return EventKind::kStep;
  return event.texts.contains("split") ? EventKind::kEvaluation : EventKind::kEpoch;
}

// "test" of test_loss and test_top1.
std::string split_of(const Event& event) {
  constexpr std::string_view kEnd = "_loss";
  for (const auto& [name, value] : event.numbers) {
    if (!name.ends_with(kEnd)) continue;
    const std::string split = name.substr(0, name.size() - kEnd.size());
    if (event.numbers.contains(split + "_top1")) return split;
  }
  return "";
}

}  // namespace

JsonLines::JsonLines(std::string path, uint64_t every,
                     std::function<void(const std::string&)> complain)
    : path_(std::move(path)), every_(every), complain_(std::move(complain)) {}

void JsonLines::write(const Event& event) {
  if (event.kind == EventKind::kStep && (every_ == 0 || event.step % every_ != 0)) return;
  const std::string line = to_line(event);
  if (line.empty()) return;
  try {
    file::append(path_, line + "\n");
  } catch (const IoError& error) {
    if (!std::exchange(complained_, true))
      complain_(fmt::format("some log lines could not be written: {}", error.what()));
  }
}

std::string to_line(const Event& event) {
  nlohmann::json line = {{"step", event.step}, {"epoch", event.epoch}};
  switch (event.kind) {
    case EventKind::kStep:
      for (const char* name : kOfAStep) line[name] = event.number(name);
      break;
    case EventKind::kEvaluation:
      for (const auto& [name, value] : event.numbers) line[name] = value;
      break;
    case EventKind::kEpoch:
      if (event.metrics.empty()) return "";
      for (const auto& [name, value] : event.metrics) line[name] = value;
      break;
    case EventKind::kBegin:
    case EventKind::kCheckpoint:
    case EventKind::kEnd:
      return "";
  }
  return line.dump();
}

std::optional<Event> from_line(const std::string& line) {
  const auto entry = nlohmann::json::parse(line, nullptr, false);
  if (!entry.is_object() || !entry.contains("epoch") || !entry["epoch"].is_number())
    return std::nullopt;
  Event event;
  event.epoch = entry["epoch"].get<double>();
  for (const auto& [name, value] : entry.items()) {
    if (name == "epoch" || !value.is_number()) continue;
    if (name == "step") {
      event.step = value.get<uint64_t>();
    } else {
      event.numbers[name] = value.get<double>();
    }
  }
  if (const std::string split = split_of(event); !split.empty()) event.texts["split"] = split;
  event.kind = kind_of(event);
  if (event.kind == EventKind::kStep) event.texts.clear();
  if (event.kind == EventKind::kEpoch) event.metrics = std::exchange(event.numbers, {});
  return event;
}

void read_log(const std::string& path, const std::function<void(const Event&)>& action) {
  if (!file::exists(path)) throw UsageError(fmt::format("{}: there is no log of a run", path));
  std::istringstream lines(file::read(path, uint64_t{1} << 30));
  bool good = false;
  for (std::string line; std::getline(lines, line);) {
    const auto event = from_line(line);
    if (!event) continue;
    good = true;
    action(*event);
  }
  if (!good) throw UsageError(path + ": no log of a run");
}

}  // namespace horon::report
