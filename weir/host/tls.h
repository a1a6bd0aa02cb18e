// SPDX-License-Identifier: Apache-2.0
//
// TLS for a loop that does its own input and output: bytes in, bytes out, no socket. GnuTLS does
// the rest.
//
//   auto keys = TlsKeys::load(directory, TlsKeys::Clients::kAny);       at the start
//   keys = TlsKeys::load_again(*keys);                                  after they were renewed
//   TlsSession session(*keys);                                          one a connection
//
//   session.put(what_came);
//   switch (session.shake()) kWants: come again with more; kDone; kFailed: send, then close
//   session.read(plain)                                  until there is no whole record left
//   session.write(plain)
//   while (session.has_output()) ... send output(), then sent(bytes) ...
//
// The directory has the files that nbdkit and QEMU use: ca-cert.pem, server-cert.pem and
// server-key.pem, and ca-crl.pem if certificates were revoked. TLS 1.2 and 1.3 are spoken. A
// session keeps the keys it began with.
//
// Memory: what put() was given has to be read before put() is called again, so that of the
// peer's bytes a session keeps the beginning of one record, 16 KiB. If a peer sends plain
// text or garbage, or asks for renegotiation, it gets an alert and the session fails; error()
// gives the reason. One owner, no locks, no clock but GnuTLS's own for validity of
// certificates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"

namespace weir::host {

// ---- certificates as files, for TLS by other libraries too (weir/cluster/credentials.h) ----

// A file in PEM form as it was when it was read.
struct PemFile {
  std::string path;
  std::string text;

  bool operator==(const PemFile&) const = default;
};

// Errors of all of these name the file; `hint` says what is wanted. EINVAL: nothing in PEM form.
Result<PemFile> read_pem(const std::string& path, std::string_view hint);
// That it holds certificates.
Result<void> check_authority(const PemFile& authority, std::string_view hint);
// That the key is the one of the certificate.
Result<void> check_pair(const PemFile& certificate, const PemFile& key, std::string_view hint);
// That it has begun to be valid and has not expired.
Result<void> check_current(const PemFile& certificate);

// What a server shows and whom it believes.
class TlsKeys {
 public:
  enum class Clients : std::uint8_t {
    kAny,
    kCertified,  // need a certificate of the authority in ca-cert.pem
  };

  using Ptr = std::shared_ptr<const TlsKeys>;

  // The error names the file.
  static Result<Ptr> load(const std::string& directory, Clients clients);
  // The files as they are now; the same keys if nothing has changed in them. A new certificate has
  // to be valid now, too: nobody renews one to be refused.
  static Result<Ptr> load_again(const Ptr& keys);
  ~TlsKeys();
  TlsKeys(const TlsKeys&) = delete;
  TlsKeys& operator=(const TlsKeys&) = delete;

 private:
  friend class TlsSession;
  struct Files;
  struct Gnu;

  explicit TlsKeys(std::unique_ptr<Gnu> gnu);
  static Result<Files> read(const std::string& directory);
  static Result<Ptr> make(const std::string& directory, Clients clients, Files files);

  std::unique_ptr<Gnu> gnu_;
};

// The server's end of one connection.
class TlsSession {
 public:
  enum class State : std::uint8_t { kWants, kDone, kFailed };
  static constexpr std::size_t kRecordBytes = 16384;

  explicit TlsSession(TlsKeys::Ptr keys);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // From the peer; valid until it was used up by shake() and read().
  // REQUIRES: what was put before is used up.
  void put(std::span<const std::byte> input);

  // The handshake, as far as it gets. Said again when done, nothing happens.
  State shake();
  bool is_open() const { return state_ == State::kDone; }

  // What the peer has said, up to the size of `to`; 0: nothing more for now. EPIPE: it has said
  // that it ends; other errors: the session has failed. REQUIRES: is_open().
  Result<std::size_t> read(std::span<std::byte> to);
  // Encrypts all of it. REQUIRES: is_open().
  void write(std::span<const std::byte> plain);
  // Says that nothing more is written.
  void end();

  bool has_output() const { return !output_.empty() || sent_ < sending_.size(); }
  // To be sent to the peer; valid until sent(), whatever is written meanwhile.
  std::span<const std::byte> output();
  void sent(std::size_t bytes);

  // Why it has failed, for the operator.
  const std::string& error() const { return error_; }

 private:
  struct Gnu;

  void fail_with(int code);

  TlsKeys::Ptr keys_;
  std::unique_ptr<Gnu> gnu_;
  State state_ = State::kWants;
  std::span<const std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<std::byte> sending_;
  std::size_t sent_ = 0;  // of it
  std::string error_;
};

}  // namespace weir::host
