#include "horon/file/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

#include "horon/base/error.h"
#include "horon/file/file.h"

namespace horon::file {

std::string digest_of(const std::string& path, const std::string& kind) {
  const EVP_MD* method = EVP_get_digestbyname(kind.c_str());
  require(method != nullptr, fmt::format("unknown checksum '{}'", kind));
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> state(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!state || EVP_DigestInit_ex(state.get(), method, nullptr) != 1)
    throw Error(fmt::format("checksum '{}' is not supported", kind));
  open(path)->read_all(0, [&](std::span<const std::byte> piece) {
    EVP_DigestUpdate(state.get(), piece.data(), piece.size());
  });
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned size = 0;
  EVP_DigestFinal_ex(state.get(), digest.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace horon::file
