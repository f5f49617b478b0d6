#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "horon/net/secret.h"

// TLS 1.3 between processes of one job, without sockets: bytes in, bytes out. Both sides prove that
// they know the job's secret (a pre-shared key with a fresh Diffie-Hellman exchange). There are no
// certificates, tickets or early data, so nothing can be replayed.
namespace horon {

enum class TlsSide { kClient, kServer };

// One end of a TLS connection. One thread at a time.
class TlsSession {
 public:
  // Bytes that a peer may send before it has authenticated.
  static constexpr size_t kMaxUnproven = 1024;

  TlsSession(TlsSide side, const Secret& secret);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Passes in bytes from the network. Throws Error with exit code 16 (auth) if the peer does not
  // belong to this job, or says that we do not; take_output() may then contain a TLS alert with the
  // reason for the peer.
  void feed(std::string_view bytes);
  // Bytes that the next feed() accepts: a server's limit for an unauthenticated peer.
  size_t room() const;
  // Bytes for the network, to be sent in order.
  std::string take_output();
  // Both sides have authenticated; read and write work.
  bool is_open() const;
  // Server: the peer has used the secret, but the handshake may not be finished.
  bool is_half_open() const;
  // Received bytes, decrypted.
  std::string read();
  void write(std::string_view plain);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horon
