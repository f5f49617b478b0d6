// The doors of libhoron_train.so, through which `horon` comes in.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "horon/base/api.h"
#include "horon/base/error.h"
#include "horon/base/version.h"
#include "horon/train/bench.h"
#include "horon/train/trainer.h"

namespace {

// What went wrong is printed here; the exit code.
int guarded(const std::function<int()>& action) {
  try {
    return action();
  } catch (const horon::Error& error) {
    fmt::print(stderr, "horon: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "horon: {}\n", error.what());
    return static_cast<int>(horon::Error(error.what()).exit_code());
  }
}

}  // namespace

extern "C" HORON_API const char* horon_part_version() { return horon::kBuildId; }

// `settings`: JSON, {"config": TrainConfig, "given": {name: value}, "knobs": {name: value}}.
extern "C" HORON_API int horon_train_run(const char* settings, int only_evaluates) {
  return guarded([&] {
    const auto json = nlohmann::json::parse(settings);
    horon::train::Start start;
    start.config = horon::train::config_from_json(json.at("config"));
    start.given = json.at("given").get<horon::train::Given>();
    // Whatever was said, wherever, is in there.
    const auto nothing = [](const std::string&) { return std::nullopt; };
    start.knobs = horon::Knobs::resolve(json.at("knobs").get<horon::train::Given>(), nothing, "");
    start.is_command = true;
    horon::train::Trainer trainer(std::move(start));
    const auto result = only_evaluates != 0 ? trainer.evaluate() : trainer.train();
    return static_cast<int>(result.interrupted ? horon::ExitCode::kInterrupted
                                               : horon::ExitCode::kOk);
  });
}

// `plan`: JSON, see bench.h. What was measured goes to the file that it names.
extern "C" HORON_API int horon_train_bench(const char* plan) {
  return guarded([&] {
    horon::train::run_bench(plan);
    return 0;
  });
}
