#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/setting.h"

// Variables that are set for Horovod. Pure.
namespace horon {

// What `given`, the value of one of setting.horovod, means as a value of the setting: seconds
// become a duration, and so on. Nothing if it leaves the setting alone.
std::optional<std::string> read_horovod(const Setting& setting, std::string_view variable,
                                        const std::string& given);

// A line for people for each variable that is set and has no meaning here.
std::vector<std::string> explain_idle_horovod(const EnvLookup& env);

}  // namespace horon
