// SPDX-License-Identifier: Apache-2.0
//
// The stream of one client of the lock service, and who is at its other end. gRPC calls a stream in
// its own threads, where it decodes a batch and only writes letters; all else is done by the
// owner's thread (lock_owner_grpc.h), to which the stream belongs until its last letter.
//
// Exposes gRPC types, so it is private to this module and not installed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "weir/base/assert.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/cluster/lock.grpc.pb.h"
#include "weir/cluster/lock_gate.h"
#include "weir/cluster/lock_wire.h"
#include "weir/host/mailbox.h"
#include "weir/serve/client_identity.h"

namespace weir::cluster {

// Parses gRPC's text: "ipv4:10.1.2.3:4567", "ipv6:%5B::1%5D:4567", "unix:...".
serve::ClientIdentity identity_of(std::string_view text);
// In the usual notation: "10.1.2.3:4567", "[::1]:4567", "unix".
std::string peer_text(std::string text);
// The name in the certificate: its subject, or if that is empty its alternative names. Empty
// without TLS. A renewed certificate has the same name.
std::string principal_of(const grpc::ServerContextBase& context);
// The end of a stream, or of a call, while the server stops.
grpc::Status stopping();

class LockStream;

// What a stream, or another thread, tells the owner.
struct LockLetter {
  enum class Kind : std::uint8_t {
    kOpened,
    kRead,
    kReadFailed,
    kWritten,
    kDone,
    kCall,
    kStop,
    kExit
  };
  Kind kind = Kind::kCall;
  LockStream* stream = nullptr;
  std::optional<lock::ClientMessage> message{};  // of kRead; none: garbage
  std::string job{};
  std::function<void()> call{};
};
// A stream has at most four letters in the mailbox, and a thread that waits for an answer has one.
using LockLetters = host::Mailbox<LockLetter>;

class LockStream : public grpc::ServerBidiReactor<lock::v1::ClientBatch, lock::v1::ServerBatch> {
 public:
  LockStream(LockLetters& letters, std::string peer, std::string principal)
      : letters_(letters), peer_(std::move(peer)), principal_(std::move(principal)) {
    send({LockLetter::Kind::kOpened, this});
  }

  const std::string& peer() const { return peer_; }
  const std::string& principal() const { return principal_; }
  void read() { StartRead(&in_); }
  void write(const lock::ServerMessage& message) {
    to_wire(message, out_);
    StartWrite(&out_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return send({LockLetter::Kind::kReadFailed, this});
    LockLetter letter{LockLetter::Kind::kRead, this};
    if (in_.has_hello()) letter.job = job_in(in_);
    letter.message = from_wire(in_);
    send(std::move(letter));
  }
  void OnWriteDone(bool) override { send({LockLetter::Kind::kWritten, this}); }
  void OnDone() override { send({LockLetter::Kind::kDone, this}); }

  // ---- the owner's ----
  LockGate::Connection number = 0;  // 0: not with the LockGate
  Instant opened{};
  RingLink<LockStream> newcomer;  // until its first message
  bool is_writing = false;
  bool has_news = false;
  bool is_ending = false;  // after the current write
  bool is_finished = false;

 private:
  void send(LockLetter letter) {
    const bool is_put = letters_.put_always(std::move(letter));
    WEIR_ASSERT(is_put);
  }

  LockLetters& letters_;
  std::string peer_;
  std::string principal_;
  lock::v1::ClientBatch in_;
  lock::v1::ServerBatch out_;
};

}  // namespace weir::cluster
