#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace horon {

// The 32 bytes that authorise a process to take part in a job. Cannot be printed or formatted; its
// bytes are available only through the calls below and are erased with the object.
class Secret {
 public:
  static constexpr size_t kBytes = 32;
  Secret() = default;  // none
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  // A new secret from the system's random generator.
  static Secret random();
  // Parses 64 hexadecimal digits, as in a secret file; UsageError otherwise, without showing the
  // text.
  static Secret from_hex(std::string_view hex);
  // Reads a secret file: owned by this user, mode 0600 or stricter, else UsageError.
  static Secret from_file(const std::string& path);
  // For jobs that were started as insecure: no real secret, computed from a name.
  static Secret insecure(std::string_view name);

  bool empty() const { return !set_; }
  // Only for the secret file and for encrypted channels.
  std::string reveal_hex() const;
  // A key for one purpose; it does not reveal the secret.
  std::array<uint8_t, kBytes> derive(std::string_view purpose) const;
  // A public name of the job; does not reveal the secret.
  std::string public_id() const;

 private:
  std::array<uint8_t, kBytes> bytes_{};
  bool set_ = false;
};

// Compares in constant time.
bool same_bytes(std::string_view a, std::string_view b);
// HMAC-SHA-256: 32 bytes.
std::string hmac(std::string_view key, std::string_view text);
std::string random_bytes(size_t count);
std::string to_hex(std::string_view bytes);

}  // namespace horon
