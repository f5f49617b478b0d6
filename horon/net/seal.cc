#include "horon/net/seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstring>
#include <limits>

#include "horon/base/error.h"
#include "horon/net/secret.h"

namespace horon {
namespace {

constexpr size_t kKeyBytes = 16;
constexpr size_t kNonceBytes = 12;
constexpr size_t kSecretBytes = 32;

unsigned char* bytes_of(void* data) { return static_cast<unsigned char*>(data); }
const unsigned char* bytes_of(const void* data) { return static_cast<const unsigned char*>(data); }

void check(int result) {
  if (result != 1) throw Error("AES-GCM failed");
}

// One block of HKDF's expansion: 32 bytes.
std::string expand(std::string_view key, std::string_view info) {
  return hmac(key, std::string(info) + '\x01');
}

void erase(std::string& text) { OPENSSL_cleanse(text.data(), text.size()); }

}  // namespace

std::string derive_key(std::string_view key, std::string_view salt, std::string_view info) {
  std::string extracted = hmac(salt, key);
  std::string derived = expand(extracted, info);
  erase(extracted);
  return derived;
}

void Seal::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

Seal::Seal(Way way, std::string_view secret, uint64_t records_per_key)
    : way_(way), chain_(secret), records_per_key_(records_per_key), context_(EVP_CIPHER_CTX_new()) {
  require(secret.size() == kSecretBytes && records_per_key > 0, "a seal needs 32 bytes of secret");
  if (!context_) throw Error("no memory for a cipher");
  use_key();
}

Seal::~Seal() {
  erase(chain_);
  erase(nonce_);
}

void Seal::use_key() {
  std::string key = expand(chain_, "horon wire key");
  nonce_ = expand(chain_, "horon wire nonce").substr(0, kNonceBytes);
  check(EVP_CipherInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr, bytes_of(key.data()),
                          bytes_of(nonce_.data()), way_ == Way::kSeal ? 1 : 0));
  static_assert(kKeyBytes <= kSecretBytes);
  erase(key);
}

void Seal::begin(uint32_t word) {
  if (way_ == Way::kSeal && !process_.is_here())
    throw Error("a forked child cannot use its parent's connections");
  if (records_ != 0 && records_ % records_per_key_ == 0) {
    std::string next = expand(chain_, "horon wire next");
    erase(chain_);
    chain_ = std::move(next);
    use_key();
  }
  unsigned char nonce[kNonceBytes];
  std::memcpy(nonce, nonce_.data(), kNonceBytes);
  for (size_t i = 0; i < sizeof(records_); ++i)
    nonce[kNonceBytes - 1 - i] ^= static_cast<unsigned char>(records_ >> (8 * i));
  ++records_;
  check(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce, -1));
  unsigned char clear[sizeof(word)];
  std::memcpy(clear, &word, sizeof(word));
  int length = 0;
  check(EVP_CipherUpdate(context_.get(), nullptr, &length, clear, sizeof(clear)));
}

void Seal::update(const void* in, void* out, size_t bytes) {
  constexpr size_t kMost = std::numeric_limits<int>::max() / 2;
  if (bytes > kMost) throw Error("a record is too long for a seal");
  int length = 0;
  if (bytes == 0) return;
  check(EVP_CipherUpdate(context_.get(), bytes_of(out), &length, bytes_of(in),
                         static_cast<int>(bytes)));
}

void Seal::finish(std::byte* tag) {
  int length = 0;
  unsigned char none[kTagBytes];
  check(EVP_CipherFinal_ex(context_.get(), none, &length));
  check(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag));
}

bool Seal::verify(const std::byte* tag) {
  unsigned char expected[kTagBytes];
  std::memcpy(expected, tag, kTagBytes);
  check(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, expected));
  int length = 0;
  unsigned char none[kTagBytes];
  return EVP_CipherFinal_ex(context_.get(), none, &length) == 1;
}

}  // namespace horon
