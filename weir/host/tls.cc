// SPDX-License-Identifier: Apache-2.0
#include "weir/host/tls.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <gnutls/gnutls.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir::host {
namespace {

constexpr const char* kPriorities = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
constexpr const char* kLayout =
    "the directory needs ca-cert.pem, server-cert.pem and server-key.pem, as certtool(1) makes "
    "them";

// Memory that was sent is given back beyond this.
constexpr std::size_t kOutputKept = std::size_t{1} << 16;

Result<void> check_file(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) return fail_errno(errno, quote(path), kLayout);
  return {};
}

tl::unexpected<Error> fail_gnu(int code, const std::string& path) {
  return fail(std::errc::invalid_argument, quote(path), gnutls_strerror(code), kLayout);
}

}  // namespace

struct TlsKeys::Gnu {
  gnutls_certificate_credentials_t credentials = nullptr;
  gnutls_priority_t priorities = nullptr;
  Clients clients = Clients::kAny;

  Gnu() = default;
  Gnu(const Gnu&) = delete;
  Gnu& operator=(const Gnu&) = delete;
  ~Gnu() {
    if (credentials != nullptr) gnutls_certificate_free_credentials(credentials);
    if (priorities != nullptr) gnutls_priority_deinit(priorities);
  }
};

TlsKeys::TlsKeys(std::unique_ptr<Gnu> gnu) : gnu_(std::move(gnu)) {}
TlsKeys::~TlsKeys() = default;

Result<std::unique_ptr<TlsKeys>> TlsKeys::load(const std::string& directory, Clients clients) {
  auto gnu = std::make_unique<Gnu>();
  gnu->clients = clients;
  if (auto done = read(*gnu, directory); !done) return tl::unexpected(done.error());
  return std::unique_ptr<TlsKeys>(new TlsKeys(std::move(gnu)));
}

Result<void> TlsKeys::read(Gnu& gnu, const std::string& directory) {
  const std::string authority = directory + "/ca-cert.pem";
  const std::string revoked = directory + "/ca-crl.pem";
  const std::string certificate = directory + "/server-cert.pem";
  const std::string key = directory + "/server-key.pem";
  for (const std::string& path : {authority, certificate, key}) {
    if (auto checked = check_file(path); !checked) return checked;
  }
  int code = gnutls_certificate_allocate_credentials(&gnu.credentials);
  if (code < 0) return fail_gnu(code, directory);
  code = gnutls_priority_init(&gnu.priorities, kPriorities, nullptr);
  if (code < 0) return fail_gnu(code, directory);
  constexpr gnutls_x509_crt_fmt_t kPem = GNUTLS_X509_FMT_PEM;
  code = gnutls_certificate_set_x509_trust_file(gnu.credentials, authority.c_str(), kPem);
  if (code == 0) {
    return fail(std::errc::invalid_argument, quote(authority), "holds no certificate", kLayout);
  }
  if (code < 0) return fail_gnu(code, authority);
  if (access(revoked.c_str(), F_OK) == 0) {
    code = gnutls_certificate_set_x509_crl_file(gnu.credentials, revoked.c_str(), kPem);
    if (code < 0) return fail_gnu(code, revoked);
  }
  code =
      gnutls_certificate_set_x509_key_file(gnu.credentials, certificate.c_str(), key.c_str(), kPem);
  if (code < 0) return fail_gnu(code, certificate);
  return {};
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

TlsSession::TlsSession(const TlsKeys& keys) : gnu_(std::make_unique<Gnu>()) {
  // With arguments that are right these fail for want of memory only.
  int code = gnutls_init(&gnu_->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
  WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);
  code = gnutls_priority_set(gnu_->session, keys.gnu_->priorities);
  WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);
  code = gnutls_credentials_set(gnu_->session, GNUTLS_CRD_CERTIFICATE, keys.gnu_->credentials);
  WEIR_ASSERT(code == GNUTLS_E_SUCCESS, code);
  if (keys.gnu_->clients == TlsKeys::Clients::kCertified) {
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
    const int code = gnutls_handshake(gnu_->session);
    if (code == GNUTLS_E_SUCCESS) {
      state_ = State::kDone;
    } else if (code == GNUTLS_E_AGAIN) {
      break;
    } else if (gnutls_error_is_fatal(code) != 0) {
      fail_with(code);
    }  // else an interruption or a warning: each has used up some input
  }
  return state_;
}

Result<std::size_t> TlsSession::read(std::span<std::byte> to) {
  WEIR_ASSERT(is_open());
  for (;;) {
    const ssize_t got = gnutls_record_recv(gnu_->session, to.data(), to.size());
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == GNUTLS_E_AGAIN) return std::size_t{0};
    if (got == 0) return fail(std::errc::broken_pipe, "TLS", "the peer has ended the session");
    if (got == GNUTLS_E_INTERRUPTED || got == GNUTLS_E_WARNING_ALERT_RECEIVED) continue;
    fail_with(static_cast<int>(got));  // another handshake among them: there is no need for it
    return fail(std::errc::protocol_error, "TLS", error_);
  }
}

void TlsSession::write(std::span<const std::byte> plain) {
  WEIR_ASSERT(is_open());
  while (!plain.empty()) {
    const ssize_t done = gnutls_record_send(gnu_->session, plain.data(), plain.size());
    // push() takes everything, so nothing is left to try again.
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
