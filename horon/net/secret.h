#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace horon {

// The 32 bytes that make a process a member of a job. Cannot be printed or formatted; bytes leave
// only through the calls below, and are wiped with the object.
class Secret {
 public:
  static constexpr size_t kBytes = 32;
  Secret() = default;  // none
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  static Secret random();
  // 64 hexadecimal digits, as in a secret file; UsageError otherwise, without showing the text.
  static Secret from_hex(std::string_view hex);
  // A secret file: mode 0600 or stricter and ours, else UsageError that says so.
  static Secret from_file(const std::string& path);
  // For jobs that were asked to be open to everybody: no secret at all, computed from a name.
  static Secret insecure(std::string_view name);

  bool empty() const { return !set_; }
  // For the secret file and for sealed channels only.
  std::string reveal_hex() const;
  // A key for one purpose; knowing it does not give the secret.
  std::array<uint8_t, kBytes> derive(std::string_view purpose) const;
  // Names the job in public: does not give the secret away either.
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
