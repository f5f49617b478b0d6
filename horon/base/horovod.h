#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/setting.h"

// Horovod's environment variables. Pure.
namespace horon {

// Converts `given`, the value of one of setting.horovod, to a value of the setting: seconds to a
// duration, and so on. Empty if it does not affect the setting.
std::optional<std::string> read_horovod(const Setting& setting, std::string_view variable,
                                        const std::string& given);

// One line of text for each variable that is set but has no effect here.
std::vector<std::string> explain_idle_horovod(const EnvLookup& env);

}  // namespace horon
