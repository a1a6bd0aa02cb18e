// SPDX-License-Identifier: Apache-2.0
#include "weir/host/tls.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir::host {
namespace {

constexpr const char* kPriorities = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
constexpr const char* kLayout =
    "the directory needs ca-cert.pem, server-cert.pem and server-key.pem, as certtool(1) makes "
    "them";

// Sent output beyond this size is freed.
constexpr std::size_t kOutputKept = std::size_t{1} << 16;

gnutls_datum_t datum_of(const std::string& text) {
  auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data()));
  return {bytes, static_cast<unsigned>(text.size())};
}

tl::unexpected<Error> fail_gnu(int code, const std::string& path, std::string_view hint) {
  return fail(std::errc::invalid_argument, quote(path), gnutls_strerror(code), hint);
}

struct Credentials {
  gnutls_certificate_credentials_t gnu = nullptr;

  Credentials() {
    // It fails only if out of memory.
    const int code = gnutls_certificate_allocate_credentials(&gnu);
    WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);
  }
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;
  ~Credentials() { gnutls_certificate_free_credentials(gnu); }

  Result<void> trust(const PemFile& authority, std::string_view hint) {
    const gnutls_datum_t text = datum_of(authority.text);
    const int code = gnutls_certificate_set_x509_trust_mem(gnu, &text, GNUTLS_X509_FMT_PEM);
    if (code < 0) return fail_gnu(code, authority.path, hint);
    if (code > 0) return {};
    return fail(std::errc::invalid_argument, quote(authority.path), "contains no certificate",
                hint);
  }
  Result<void> revoke(const PemFile& revoked) {
    const gnutls_datum_t text = datum_of(revoked.text);
    const int code = gnutls_certificate_set_x509_crl_mem(gnu, &text, GNUTLS_X509_FMT_PEM);
    if (code < 0) return fail_gnu(code, revoked.path, kLayout);
    return {};
  }
  // Also checks that the two match.
  Result<void> show(const PemFile& certificate, const PemFile& key, std::string_view hint) {
    const gnutls_datum_t shown = datum_of(certificate.text);
    const gnutls_datum_t secret = datum_of(key.text);
    const int code = gnutls_certificate_set_x509_key_mem(gnu, &shown, &secret, GNUTLS_X509_FMT_PEM);
    if (code < 0) return fail_gnu(code, certificate.path, hint);
    return {};
  }
};

// The first certificate of a file; a negative code: there is none.
struct Certificate {
  gnutls_x509_crt_t gnu = nullptr;
  int code = 0;

  explicit Certificate(const PemFile& file) {
    code = gnutls_x509_crt_init(&gnu);
    WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);  // it fails only if out of memory
    const gnutls_datum_t text = datum_of(file.text);
    code = gnutls_x509_crt_import(gnu, &text, GNUTLS_X509_FMT_PEM);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  ~Certificate() { gnutls_x509_crt_deinit(gnu); }
};

}  // namespace

// ---- certificates as files ----

Result<PemFile> read_pem(const std::string& path, std::string_view hint) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad() || !file.is_open()) {
    return fail_errno(errno == 0 ? EIO : errno, quote(path), hint);
  }
  if (text.find("-----BEGIN ") == std::string::npos) {
    return fail(std::errc::invalid_argument, quote(path), "contains no PEM data", hint);
  }
  return PemFile{path, std::move(text)};
}

Result<void> check_authority(const PemFile& authority, std::string_view hint) {
  return Credentials().trust(authority, hint);
}

Result<void> check_pair(const PemFile& certificate, const PemFile& key, std::string_view hint) {
  return Credentials().show(certificate, key, hint);
}

Result<void> check_current(const PemFile& certificate) {
  const Certificate first(certificate);
  if (first.code < 0) return fail_gnu(first.code, certificate.path, {});
  const std::time_t from = gnutls_x509_crt_get_activation_time(first.gnu);
  const std::time_t to = gnutls_x509_crt_get_expiration_time(first.gnu);
  const std::time_t now = std::time(nullptr);
  if (now >= from && now <= to) return {};
  return fail(std::errc::invalid_argument, quote(certificate.path),
              now < from ? "is not valid yet" : "has expired", "renew it");
}

// ---- the certificate of a server ----

struct TlsKeys::Files {
  PemFile authority;
  PemFile certificate;
  PemFile key;
  std::optional<PemFile> revoked;

  bool operator==(const Files&) const = default;
};

struct TlsKeys::Gnu {
  Credentials credentials;
  gnutls_priority_t priorities = nullptr;
  Clients clients = Clients::kAny;
  std::string directory;
  Files files;

  Gnu() = default;
  Gnu(const Gnu&) = delete;
  Gnu& operator=(const Gnu&) = delete;
  ~Gnu() {
    if (priorities != nullptr) gnutls_priority_deinit(priorities);
  }
};

TlsKeys::TlsKeys(std::unique_ptr<Gnu> gnu) : gnu_(std::move(gnu)) {}
TlsKeys::~TlsKeys() = default;

Result<TlsKeys::Files> TlsKeys::read(const std::string& directory) {
  Files files;
  const std::pair<PemFile*, const char*> wanted[] = {{&files.authority, "/ca-cert.pem"},
                                                     {&files.certificate, "/server-cert.pem"},
                                                     {&files.key, "/server-key.pem"}};
  for (const auto& [file, name] : wanted) {
    auto got = read_pem(directory + name, kLayout);
    if (!got) return tl::unexpected(got.error());
    *file = *std::move(got);
  }
  const std::string revoked = directory + "/ca-crl.pem";
  if (access(revoked.c_str(), F_OK) == 0) {
    auto got = read_pem(revoked, kLayout);
    if (!got) return tl::unexpected(got.error());
    files.revoked = *std::move(got);
  }
  return files;
}

Result<TlsKeys::Ptr> TlsKeys::make(const std::string& directory, Clients clients, Files files) {
  auto gnu = std::make_unique<Gnu>();
  gnu->clients = clients;
  gnu->directory = directory;
  const int code = gnutls_priority_init(&gnu->priorities, kPriorities, nullptr);
  if (code < 0) return fail_gnu(code, directory, kLayout);
  if (auto done = gnu->credentials.trust(files.authority, kLayout); !done) {
    return tl::unexpected(done.error());
  }
  if (files.revoked) {
    if (auto done = gnu->credentials.revoke(*files.revoked); !done) {
      return tl::unexpected(done.error());
    }
  }
  if (auto done = gnu->credentials.show(files.certificate, files.key, kLayout); !done) {
    return tl::unexpected(done.error());
  }
  gnu->files = std::move(files);
  return Ptr(new TlsKeys(std::move(gnu)));
}

Result<TlsKeys::Ptr> TlsKeys::load(const std::string& directory, Clients clients) {
  auto files = read(directory);
  if (!files) return tl::unexpected(files.error());
  return make(directory, clients, *std::move(files));
}

Result<TlsKeys::Ptr> TlsKeys::load_again(const Ptr& keys) {
  const Gnu& now = *keys->gnu_;
  auto files = read(now.directory);
  if (!files) return tl::unexpected(files.error());
  if (*files == now.files) return keys;
  if (files->certificate != now.files.certificate) {
    if (auto checked = check_current(files->certificate); !checked) {
      return tl::unexpected(checked.error());
    }
  }
  return make(now.directory, now.clients, *std::move(files));
}

bool TlsKeys::is_for(const std::string& host) const {
  const Certificate own(gnu_->files.certificate);
  return own.code >= 0 && gnutls_x509_crt_check_hostname(own.gnu, host.c_str()) != 0;
}

// ---- one connection ----

struct TlsSession::Gnu {
  gnutls_session_t session = nullptr;

  Gnu() = default;
  Gnu(const Gnu&) = delete;
  Gnu& operator=(const Gnu&) = delete;
  ~Gnu() {
    if (session != nullptr) gnutls_deinit(session);
  }

  static ssize_t pull(gnutls_transport_ptr_t owner, void* to, std::size_t bytes) {
    auto& self = *static_cast<TlsSession*>(owner);
    const std::size_t taken = std::min(bytes, self.input_.size());
    if (taken == 0) {
      gnutls_transport_set_errno(self.gnu_->session, EAGAIN);
      return -1;
    }
    std::memcpy(to, self.input_.data(), taken);
    self.input_ = self.input_.subspan(taken);
    return static_cast<ssize_t>(taken);
  }

  static ssize_t push(gnutls_transport_ptr_t owner, const void* from, std::size_t bytes) {
    auto& self = *static_cast<TlsSession*>(owner);
    const auto* const first = static_cast<const std::byte*>(from);
    self.output_.insert(self.output_.end(), first, first + bytes);
    return static_cast<ssize_t>(bytes);
  }
};

TlsSession::TlsSession(TlsKeys::Ptr keys) : keys_(std::move(keys)), gnu_(std::make_unique<Gnu>()) {
  // With valid arguments these fail only if out of memory.
  int code = gnutls_init(&gnu_->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
  WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);
  code = gnutls_priority_set(gnu_->session, keys_->gnu_->priorities);
  WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);
  code =
      gnutls_credentials_set(gnu_->session, GNUTLS_CRD_CERTIFICATE, keys_->gnu_->credentials.gnu);
  WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);
  if (keys_->gnu_->clients == TlsKeys::Clients::kCertified) {
    gnutls_certificate_server_set_request(gnu_->session, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_cert(gnu_->session, nullptr, 0);
  }
  // The owner has its own timeout; GnuTLS's would read a clock and wait.
  gnutls_handshake_set_timeout(gnu_->session, 0);
  gnutls_transport_set_ptr(gnu_->session, this);
  gnutls_transport_set_pull_function(gnu_->session, Gnu::pull);
  gnutls_transport_set_push_function(gnu_->session, Gnu::push);
}

TlsSession::~TlsSession() = default;

void TlsSession::put(std::span<const std::byte> input) {
  WEIR_ASSERT(input_.empty(), input_.size());
  input_ = input;
  if (state_ != State::kWants) return;
  handshake_bytes_ += input.size();
  if (handshake_bytes_ > kHandshakeBytesMax) fail_with(GNUTLS_E_HANDSHAKE_TOO_LARGE);
}

void TlsSession::fail_with(int code) {
  if (state_ == State::kFailed) return;
  error_ = gnutls_strerror(code);
  if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) {
    gnutls_datum_t text{};
    const unsigned status = gnutls_session_get_verify_cert_status(gnu_->session);
    const auto kind = gnutls_certificate_type_get(gnu_->session);
    if (gnutls_certificate_verification_status_print(status, kind, &text, 0) == 0) {
      error_ = reinterpret_cast<const char*>(text.data);
      gnutls_free(text.data);
    }
  }
  gnutls_alert_send_appropriate(gnu_->session, code);
  state_ = State::kFailed;
  input_ = {};
}

TlsSession::State TlsSession::shake() {
  while (state_ == State::kWants) {
    const std::size_t left = input_.size();
    const int code = gnutls_handshake(gnu_->session);
    if (code == GNUTLS_E_SUCCESS) {
      state_ = State::kDone;
    } else if (code == GNUTLS_E_AGAIN && input_.empty()) {
      break;
    } else if (code == GNUTLS_E_AGAIN && input_.size() < left) {
      continue;  // it returns after each record of a message that has several
    } else if (code == GNUTLS_E_AGAIN) {
      fail_with(GNUTLS_E_UNEXPECTED_PACKET_LENGTH);
    } else if (gnutls_error_is_fatal(code) != 0) {
      fail_with(code);
    }  // else an interruption or a warning: each has used up some input
  }
  return state_;
}

Result<std::size_t> TlsSession::read(std::span<std::byte> to) {
  WEIR_ASSERT(is_open());
  for (;;) {
    const std::size_t left = input_.size();
    ssize_t got = gnutls_record_recv(gnu_->session, to.data(), to.size());
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == GNUTLS_E_AGAIN && input_.empty()) return std::size_t{0};
    if (got == GNUTLS_E_AGAIN && input_.size() < left) continue;  // as in shake()
    if (got == GNUTLS_E_AGAIN) got = GNUTLS_E_UNEXPECTED_PACKET_LENGTH;
    if (got == 0) return fail(std::errc::broken_pipe, "TLS", "the peer closed the session");
    if (got == GNUTLS_E_INTERRUPTED || got == GNUTLS_E_WARNING_ALERT_RECEIVED) continue;
    fail_with(static_cast<int>(got));  // including a second handshake, which is not supported
    return fail(std::errc::protocol_error, "TLS", error_);
  }
}

void TlsSession::write(std::span<const std::byte> plain) {
  WEIR_ASSERT(is_open());
  while (!plain.empty()) {
    const ssize_t done = gnutls_record_send(gnu_->session, plain.data(), plain.size());
    // push() accepts everything, so nothing has to be retried.
    WEIR_ASSERT(done > 0, done);
    plain = plain.subspan(static_cast<std::size_t>(done));
  }
}

void TlsSession::end() {
  if (is_open()) gnutls_bye(gnu_->session, GNUTLS_SHUT_WR);
}

std::span<const std::byte> TlsSession::output() {
  if (sending_.empty()) std::swap(sending_, output_);
  return std::span(sending_).subspan(sent_);
}

void TlsSession::sent(std::size_t bytes) {
  sent_ += bytes;
  WEIR_ASSERT(sent_ <= sending_.size(), sent_, sending_.size());
  if (sent_ < sending_.size()) return;
  sent_ = 0;
  sending_.clear();
  if (sending_.capacity() > kOutputKept) sending_.shrink_to_fit();
}

}  // namespace weir::host
