#pragma once

#include <string>

namespace horon::file {

// The digest of a file in lower-case hexadecimal. `kind`: "md5" or "sha256". IoError.
std::string digest_of(const std::string& path, const std::string& kind);

}  // namespace horon::file
