#include "horon/net/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <cstring>

#include "horon/base/error.h"

namespace horon {
namespace {

constexpr std::array<unsigned char, 2> kAes128GcmSha256 = {0x13, 0x01};
constexpr const char* kIdentity = "horon-job-1";

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* session) const { SSL_free(session); }
};

std::string openssl_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "connection broken" : reason;
}

// Found from a callback through the SSL's application data.
struct Key {
  std::array<uint8_t, Secret::kBytes> bytes;
};

SSL_SESSION* session_of(SSL* ssl) {
  const auto* key = static_cast<const Key*>(SSL_get_app_data(ssl));
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256.data());
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, key->bytes.data(), key->bytes.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

int use_psk(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* length,
            SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(kIdentity);
  *length = std::strlen(kIdentity);
  *session = session_of(ssl);
  return *session == nullptr ? 0 : 1;
}

int find_psk(SSL* ssl, const unsigned char* id, size_t length, SSL_SESSION** session) {
  *session = nullptr;
  const bool known = length == std::strlen(kIdentity) && std::memcmp(id, kIdentity, length) == 0;
  if (known) *session = session_of(ssl);
  return 1;
}

std::unique_ptr<SSL_CTX, Free> make_context() {
  std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_method()));
  if (!context) throw Error("TLS: " + openssl_reason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set1_groups_list(context.get(), "X25519");
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // No certificates at all: a peer without the key finds nothing to shake hands with.
  SSL_CTX_set_psk_use_session_callback(context.get(), use_psk);
  SSL_CTX_set_psk_find_session_callback(context.get(), find_psk);
  return context;
}

// While the process ends, threads and static objects may still hold sessions: OpenSSL's clean-up at
// exit would pull it from under them. It can be declined only by whoever starts OpenSSL first, so
// this runs before all static objects are made.
[[gnu::constructor(101)]] void keep_openssl_to_the_end() {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

// Holds no secrets: those belong to the sessions. Never freed, for the same reason.
SSL_CTX* shared_context() {
  // OpenSSL counts its references in it, so it cannot be const.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static SSL_CTX* const kContext = make_context().release();
  return kContext;
}

}  // namespace

struct TlsSession::Impl {
  TlsSide side{};
  Key key{};
  std::unique_ptr<SSL, Free> ssl;
  BIO* in = nullptr;   // owned by ssl
  BIO* out = nullptr;  // owned by ssl
  size_t unproven = 0;
  ~Impl() { OPENSSL_cleanse(&key, sizeof(key)); }
};

TlsSession::TlsSession(TlsSide side, const Secret& secret) : impl_(std::make_unique<Impl>()) {
  require(!secret.empty(), "TLS needs the job's secret");
  impl_->side = side;
  impl_->key.bytes = secret.derive("tls 1.3 pre-shared key");
  impl_->ssl.reset(SSL_new(shared_context()));
  impl_->in = BIO_new(BIO_s_mem());
  impl_->out = BIO_new(BIO_s_mem());
  if (!impl_->ssl || impl_->in == nullptr || impl_->out == nullptr) {
    throw Error("TLS: " + openssl_reason());
  }
  SSL* ssl = impl_->ssl.get();
  SSL_set_bio(ssl, impl_->in, impl_->out);
  SSL_set_app_data(ssl, &impl_->key);
  if (side == TlsSide::kClient) {
    SSL_set_connect_state(ssl);
    SSL_do_handshake(ssl);
    ERR_clear_error();
  } else {
    SSL_set_accept_state(ssl);
  }
}

TlsSession::~TlsSession() = default;

bool TlsSession::is_open() const { return SSL_is_init_finished(impl_->ssl.get()) == 1; }

bool TlsSession::is_half_open() const {
  const OSSL_HANDSHAKE_STATE state = SSL_get_state(impl_->ssl.get());
  return is_open() || state == TLS_ST_SW_FINISHED || state == TLS_ST_EARLY_DATA ||
         state == TLS_ST_SR_FINISHED;
}

void TlsSession::feed(std::string_view bytes) {
  SSL* ssl = impl_->ssl.get();
  if (bytes.size() > room()) {
    throw Error(
        fmt::format("TLS: more than {} bytes before a proof of the job's secret", kMaxUnproven),
        ExitCode::kAuth);
  }
  if (!is_open()) impl_->unproven += bytes.size();
  if (BIO_write(impl_->in, bytes.data(), static_cast<int>(bytes.size())) !=
      static_cast<int>(bytes.size())) {
    throw Error("TLS: out of memory");
  }
  if (is_open()) return;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl);
  if (result == 1) {
    // Without the key the two would have found no cipher; this is the belt to those braces.
    if (SSL_session_reused(ssl) != 1) {
      throw Error("TLS: the peer did not use the job's secret", ExitCode::kAuth);
    }
    return;
  }
  const int why = SSL_get_error(ssl, result);
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return;
  throw Error("TLS: the peer does not have this job's secret (" + openssl_reason() + ")",
              ExitCode::kAuth);
}

size_t TlsSession::room() const {
  const bool limited = impl_->side == TlsSide::kServer && !is_open();
  return limited ? kMaxUnproven - impl_->unproven : SIZE_MAX;
}

std::string TlsSession::take_output() {
  char* data = nullptr;
  const long size = BIO_get_mem_data(impl_->out, &data);
  std::string bytes(data, size > 0 ? static_cast<size_t>(size) : 0);
  BIO_reset(impl_->out);
  return bytes;
}

std::string TlsSession::read() {
  std::string plain;
  char piece[16384];
  while (is_open()) {
    ERR_clear_error();
    const int got = SSL_read(impl_->ssl.get(), piece, sizeof(piece));
    if (got > 0) {
      plain.append(piece, static_cast<size_t>(got));
      continue;
    }
    const int why = SSL_get_error(impl_->ssl.get(), got);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) break;
    // A server that refuses us says so only now: our own handshake was over first.
    throw Error("TLS: " + openssl_reason(),
                why == SSL_ERROR_SSL ? ExitCode::kAuth : ExitCode::kPeer);
  }
  return plain;
}

void TlsSession::write(std::string_view plain) {
  require(is_open(), "TLS: not open yet");
  while (!plain.empty()) {
    const size_t piece = std::min<size_t>(plain.size(), 1U << 20);
    ERR_clear_error();
    const int put = SSL_write(impl_->ssl.get(), plain.data(), static_cast<int>(piece));
    if (put <= 0) throw Error("TLS: " + openssl_reason(), ExitCode::kPeer);
    plain.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace horon
