#pragma once

#include <string>

namespace horon::file {

// Of a whole file, in small letters. `kind`: "md5" or "sha256".
std::string digest_of(const std::string& path, const std::string& kind);

}  // namespace horon::file
