#include "horon/net/secret.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/text.h"

namespace horon {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view view(const std::array<uint8_t, Secret::kBytes>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Secret Secret::random() {
  Secret secret;
  const std::string bytes = random_bytes(kBytes);
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  secret.set_ = true;
  return secret;
}

Secret Secret::from_hex(std::string_view hex) {
  Secret secret;
  bool good = hex.size() == 2 * kBytes;
  for (size_t i = 0; good && i < kBytes; ++i) {
    const int high = digit_of(hex[2 * i]);
    const int low = digit_of(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    secret.bytes_[i] = static_cast<uint8_t>((high << 4) | low);
  }
  require(good, fmt::format("a secret is {} hexadecimal digits; `horon secret FILE` makes one",
                            2 * kBytes));
  secret.set_ = true;
  return secret;
}

Secret Secret::from_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    throw UsageError(
        fmt::format("secret file '{}' cannot be read; `horon secret '{}'` makes one", path, path),
        ExitCode::kAuth);
  }
  if ((info.st_mode & 0077) != 0 || !S_ISREG(info.st_mode)) {
    throw UsageError(fmt::format("secret file '{}' can be read by others (mode {:04o}); chmod 600 "
                                 "it, or make a new one with `horon secret`",
                                 path, info.st_mode & 07777),
                     ExitCode::kAuth);
  }
  if (info.st_uid != geteuid()) {
    throw UsageError(fmt::format("secret file '{}' belongs to another user", path),
                     ExitCode::kAuth);
  }
  try {
    return from_hex(trim(read_small_file(path, 4096)));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("secret file '{}': {}", path, error.what()), ExitCode::kAuth);
  }
}

Secret Secret::insecure(std::string_view name) {
  Secret secret;
  const std::string bytes = hmac("horon insecure", name);
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  secret.set_ = true;
  return secret;
}

std::string Secret::reveal_hex() const { return to_hex(view(bytes_)); }

std::array<uint8_t, Secret::kBytes> Secret::derive(std::string_view purpose) const {
  const std::string key = hmac(view(bytes_), purpose);
  std::array<uint8_t, kBytes> result{};
  std::copy(key.begin(), key.end(), result.begin());
  return result;
}

std::string Secret::public_id() const { return to_hex(view(derive("job id")).substr(0, 8)); }

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hmac(std::string_view key, std::string_view text) {
  unsigned char result[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), result,
           &length) == nullptr) {
    throw Error("HMAC failed");
  }
  return {reinterpret_cast<char*>(result), length};
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) throw io_error("getrandom");
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace horon
