// SPDX-License-Identifier: Apache-2.0
//
// TLS for a loop that does its own input and output: bytes in, bytes out, no socket. GnuTLS does
// the rest.
//
//   auto keys = TlsKeys::load(directory, TlsKeys::Clients::kAny);       once, at the start
//   TlsSession session(**keys);                                         one a connection
//
//   session.put(what_came);
//   switch (session.shake()) kWants: come again with more; kDone; kFailed: send, then close
//   session.read(plain)                                  until there is no whole record left
//   session.write(plain)
//   while (session.has_output()) ... send output(), then sent(bytes) ...
//
// The directory has the files that nbdkit and QEMU use: ca-cert.pem, server-cert.pem and
// server-key.pem, and ca-crl.pem if certificates were revoked. TLS 1.2 and 1.3 are spoken.
//
// Memory: what put() was given has to be read before put() is called again, so that of the peer's
// bytes a session keeps the beginning of one record, 16 KiB. A peer that speaks plain text, sends
// garbage, or asks for another handshake in the middle is told so by an alert, and the session has
// failed; error() says why. One owner, no locks, no clock but GnuTLS's own for validity of
// certificates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weir/base/result.h"

namespace weir::host {

// What a server shows and whom it believes.
class TlsKeys {
 public:
  enum class Clients : std::uint8_t {
    kAny,
    kCertified,  // need a certificate of the authority in ca-cert.pem
  };

  // The error names the file.
  static Result<std::unique_ptr<TlsKeys>> load(const std::string& directory, Clients clients);
  ~TlsKeys();
  TlsKeys(const TlsKeys&) = delete;
  TlsKeys& operator=(const TlsKeys&) = delete;

 private:
  friend class TlsSession;
  struct Gnu;

  explicit TlsKeys(std::unique_ptr<Gnu> gnu);
  static Result<void> read(Gnu& gnu, const std::string& directory);

  std::unique_ptr<Gnu> gnu_;
};

// The server's end of one connection.
class TlsSession {
 public:
  enum class State : std::uint8_t { kWants, kDone, kFailed };
  static constexpr std::size_t kRecordBytes = 16384;

  // The keys must outlive it.
  explicit TlsSession(const TlsKeys& keys);
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

  std::unique_ptr<Gnu> gnu_;
  State state_ = State::kWants;
  std::span<const std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<std::byte> sending_;
  std::size_t sent_ = 0;  // of it
  std::string error_;
};

}  // namespace weir::host
