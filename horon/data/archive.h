#pragma once

#include <string>
#include <vector>

namespace horon {

// Unpacks a .tar or .tar.gz into a folder. Only files and folders come out of it, and only below
// that folder: absolute paths, "..", links and devices are refused by name, before anything of them
// is written. CorruptRecord for damaged archives; the files that were unpacked.
std::vector<std::string> unpack_archive(const std::string& path, const std::string& folder);

}  // namespace horon
