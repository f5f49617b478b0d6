#pragma once

#include <string>
#include <vector>

namespace horon {

// Unpacks a .tar or .tar.gz into a folder and returns the unpacked files. Extracts only files and
// folders, and only below that folder: absolute paths, "..", links and devices are refused by name
// before anything of them is written. CorruptRecord for damaged archives.
std::vector<std::string> unpack_archive(const std::string& path, const std::string& folder);

}  // namespace horon
