// The doors of libhoron_train.so, through which `horon` comes in.
#include <nlohmann/json.hpp>

#include "horon/base/api.h"
#include "horon/base/version.h"
#include "horon/train/detail_door.h"
#include "horon/train/trainer.h"

extern "C" HORON_API const char* horon_part_version() { return horon::kBuildId; }

// `settings`: JSON, {"config": TrainConfig, "given": {name: value}, "job_settings": {name: value}}.
extern "C" HORON_API int horon_train_run(const char* settings, int only_evaluates) {
  return horon::train::guarded([&] {
    const auto json = nlohmann::json::parse(settings);
    horon::train::Start start;
    start.config = horon::train::config_from_json(json.at("config"));
    start.given = json.at("given").get<horon::train::Given>();
    // "job_settings" has the values of all sources: no environment, no file.
    const auto nothing = [](const std::string&) { return std::nullopt; };
    start.job_settings = horon::JobSettings::resolve(
        json.at("job_settings").get<horon::train::Given>(), nothing, "");
    start.is_command = true;
    horon::train::Trainer trainer(std::move(start));
    const auto result = only_evaluates != 0 ? trainer.evaluate() : trainer.train();
    return static_cast<int>(result.interrupted ? horon::ExitCode::kInterrupted
                                               : horon::ExitCode::kOk);
  });
}
