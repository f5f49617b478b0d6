#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "horon/net/secret.h"

// TLS 1.3 between members of one job, without sockets: bytes in, bytes out. Both sides prove that
// they know the job's secret (a pre-shared key with a fresh Diffie-Hellman exchange); there are no
// certificates, no tickets, no early data, and so nothing that could be replayed.
namespace horon {

enum class TlsSide { kClient, kServer };

class TlsSession {
 public:
  // What a peer may send before it has proved itself.
  static constexpr size_t kMaxUnproven = 1024;

  TlsSession(TlsSide side, const Secret& secret);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Bytes from the network. Throws Error: exit code 16 (auth) if the peer is not of this job or
  // says that we are not; a TLS alert that tells the peer why may still lie in take_output().
  void feed(std::string_view bytes);
  // How many bytes the next feed() may take: a server's limit for a peer without a proof.
  size_t room() const;
  // Bytes for the network, to be sent in order.
  std::string take_output();
  // Both sides are proven; read and write work.
  bool is_open() const;
  // Server: the peer has shown the secret once, its handshake may not yet be over.
  bool is_half_open() const;
  // What arrived, decrypted.
  std::string read();
  void write(std::string_view plain);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horon
