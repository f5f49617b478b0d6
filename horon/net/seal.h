#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "horon/base/thread.h"

struct evp_cipher_ctx_st;

// Authenticated encryption of the records of one direction of one connection.
namespace horon {

// HKDF (RFC 5869) with SHA-256, 32 bytes: for one purpose, from a key and fresh randomness.
std::string derive_key(std::string_view key, std::string_view salt, std::string_view info);

// AES-128-GCM with a nonce that counts records and is never sent: a record that is changed,
// repeated, left out or moved does not verify. The key is replaced after `records_per_key` records,
// by a one-way function, on both sides at the same record. A forked child cannot seal: it would use
// a nonce twice. One thread at a time.
//   seal.begin(word); seal.update(in, out, bytes); seal.finish(tag);
class Seal {
 public:
  enum class Way { kSeal, kOpen };
  static constexpr size_t kTagBytes = 16;

  // `secret`: 32 bytes, for this direction only.
  Seal(Way way, std::string_view secret, uint64_t records_per_key);
  ~Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  // Begins the next record; `word` is authenticated with it and travels unencrypted.
  void begin(uint32_t word);
  // Encrypts or decrypts the next bytes of the record. What was decrypted must not be used before
  // verify(). `in` and `out` are equal or do not overlap.
  void update(const void* in, void* out, size_t bytes);
  // kSeal: ends the record, writes its tag.
  void finish(std::byte* tag);
  // kOpen: ends the record; false if it is not what the other side sealed.
  [[nodiscard]] bool verify(const std::byte* tag);

 private:
  void use_key();

  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  Way way_;
  OwnProcess process_;
  std::string chain_;  // the secret of the current key
  std::string nonce_;
  uint64_t records_per_key_;
  uint64_t records_ = 0;
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace horon
