#pragma once

#include <map>
#include <string>
#include <vector>

#include "horon/base/knob.h"

// Ranks that are to work together say what they were given, and go on only if it is the same. Pure.
namespace horon {

using Said = std::map<std::string, std::string>;  // name -> value

// "chunk_bytes: 4096 bytes on rank 0, 8192 bytes on ranks 1, 2": of each name that differs.
std::vector<std::string> disagreements(const std::vector<Said>& all);

// The job's settings that its ranks must have alike (AmongRanks in base/setting.h), by what they
// mean: "4MB" and "4194304" are the same.
Said common_settings(const Knobs& knobs);

// As one value of a store, and back. Error for text that is none.
std::string pack_said(const Said& said);
Said unpack_said(const std::string& text);

}  // namespace horon
