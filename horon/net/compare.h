#pragma once

#include <map>
#include <string>
#include <vector>

#include "horon/base/job_settings.h"

// Comparison of settings between ranks before they work together. Pure.
namespace horon {

using Said = std::map<std::string, std::string>;  // name -> value

// One text per name whose values differ: "chunk_bytes: 4096 bytes on rank 0, 8192 bytes on ranks 1,
// 2".
std::vector<std::string> disagreements(const std::vector<Said>& all);

// The job settings that must be equal on all ranks (AmongRanks in base/setting.h), in normalised
// form: "4MB" and "4194304" are equal.
Said common_settings(const JobSettings& job_settings);

// Converts to one store value and back. Throws Error for invalid text.
std::string pack_said(const Said& said);
Said unpack_said(const std::string& text);

}  // namespace horon
