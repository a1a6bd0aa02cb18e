// SPDX-License-Identifier: Apache-2.0
//
// TLS for a loop that does its own I/O: bytes in, bytes out, no socket. Uses GnuTLS.
//
//   auto keys = TlsKeys::load(directory, TlsKeys::Clients::kAny);       at the start
//   keys = TlsKeys::load_again(*keys);                                  after a renewal
//   TlsSession session(*keys);                                          one per connection
//
//   session.put(received);
//   switch (session.shake()) kWants: call again with more; kDone; kFailed: send, then close
//   session.read(plain)                                  until there is no complete record left
//   session.write(plain)
//   while (session.has_output()) ... send output(), then sent(bytes) ...
//
// The directory has the same files as for nbdkit and QEMU: ca-cert.pem, server-cert.pem and
// server-key.pem, and ca-crl.pem if certificates were revoked. Supports TLS 1.2 and 1.3. A session
// keeps the keys it started with.
//
// Memory: bytes given to put() must be read before the next put(), so a session stores at most the
// start of one record, 16 KiB. If a peer sends plain text or garbage, or asks for renegotiation, it
// gets an alert and the session fails; error() returns the reason. One owner, no locks, no clock
// except GnuTLS's own for the validity of certificates.
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

// A PEM file, as read.
struct PemFile {
  std::string path;
  std::string text;

  bool operator==(const PemFile&) const = default;
};

// Errors of all of these name the file; `hint` is the remedy. EINVAL: not PEM.
Result<PemFile> read_pem(const std::string& path, std::string_view hint);
// Checks that it contains certificates.
Result<void> check_authority(const PemFile& authority, std::string_view hint);
// Checks that the key belongs to the certificate.
Result<void> check_pair(const PemFile& certificate, const PemFile& key, std::string_view hint);
// Checks that it is valid now.
Result<void> check_current(const PemFile& certificate);

// The certificate of a server, and the authority that it trusts.
class TlsKeys {
 public:
  enum class Clients : std::uint8_t {
    kAny,
    kCertified,  // need a certificate of the authority in ca-cert.pem
  };

  using Ptr = std::shared_ptr<const TlsKeys>;

  // The error names the file.
  static Result<Ptr> load(const std::string& directory, Clients clients);
  // Reads the current files; returns the same keys if nothing has changed. A new certificate must
  // be valid now, since clients would reject it otherwise.
  static Result<Ptr> load_again(const Ptr& keys);
  // Whether the certificate is for this name or address.
  bool is_for(const std::string& host) const;
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

// The server side of one connection.
class TlsSession {
 public:
  enum class State : std::uint8_t { kWants, kDone, kFailed };
  static constexpr std::size_t kRecordBytes = 16384;
  // Bytes that a client may send until the handshake is done: GnuTLS keeps those of a message that
  // is not complete. A chain of certificates has a few KiB.
  static constexpr std::size_t kHandshakeBytesMax = std::size_t{48} << 10;

  explicit TlsSession(TlsKeys::Ptr keys);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Input from the peer; must stay valid until shake() and read() have used it. REQUIRES: earlier
  // input is used up.
  void put(std::span<const std::byte> input);

  // Continues the handshake as far as possible. Does nothing when it is done.
  State shake();
  bool is_open() const { return state_ == State::kDone; }

  // Decrypted data, up to the size of `to`; 0: no more for now. EPIPE: the peer has closed the
  // session; other errors: the session has failed. REQUIRES: is_open().
  Result<std::size_t> read(std::span<std::byte> to);
  // Encrypts all of it. REQUIRES: is_open().
  void write(std::span<const std::byte> plain);
  // Notifies the peer that nothing more is written.
  void end();

  bool has_output() const { return !output_.empty() || sent_ < sending_.size(); }
  // Data to send to the peer; valid until sent(), also if more is written meanwhile.
  std::span<const std::byte> output();
  void sent(std::size_t bytes);

  // Why it has failed, for the log.
  const std::string& error() const { return error_; }

 private:
  struct Gnu;

  void fail_with(int code);

  TlsKeys::Ptr keys_;
  std::unique_ptr<Gnu> gnu_;
  State state_ = State::kWants;
  std::span<const std::byte> input_;
  std::size_t handshake_bytes_ = 0;  // received so far
  std::vector<std::byte> output_;
  std::vector<std::byte> sending_;
  std::size_t sent_ = 0;  // bytes of it that were sent
  std::string error_;
};

}  // namespace weir::host
