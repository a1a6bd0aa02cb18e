// SPDX-License-Identifier: Apache-2.0
//
// The lock server behind a Target: lock requests pass the same scheduler, with the same rules, as
// reads and writes.
//
//   message --> hello, replays, keep-alive: at once ----------------------> LockServer
//           --> cancels: high-priority head, one request each --> Target --run--> |
//           --> enqueues: regular head, one request each ------->              '-> answers
//           --> converts: one of the two heads
//
// Each enqueue, cancel and conversion is a separate request (opcodes ldlm_enqueue, ldlm_cancel,
// ldlm_convert; job and address of the connection), so that a rate counts locks, however clients
// batch them. Cancels have high priority, because another client may wait for the lock. So have
// conversions to modes that exclude less, unless another conversion of the connection is ahead:
// their order matters. A request is complete when it was
// passed to the LockServer: an enqueue that waits for a conflicting lock holds no slot. Keep-alives
// never wait for tokens; otherwise a limit could cost a client its locks.
//
// Bounds. A connection has at most waiting_max enqueues and conversions in the Target; more are
// rejected. Cancels above that number bypass the scheduler: memory stays bounded, and no client
// gains by it.
//
// One owner, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/result.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/rule_spec.h"
#include "weir/lock/message.h"
#include "weir/lock/server.h"
#include "weir/serve/trace_file.h"
#include "weir/target/target.h"

namespace weir::cluster {

struct LockGateOptions {
  lock::ServerOptions server{};
  std::string policy = "fifo";  // as written to nrs_policies
  std::vector<RuleChange> rules;
  std::vector<std::string> nodemaps;  // names
  lock::SecretOf secret_of;           // required
  serve::TraceFile* trace = nullptr;  // records the Target's calls; outlives the gate
};

class LockGate {
 public:
  using Connection = lock::LockServer::Connection;

  // EINVAL, ENOENT: the policy or a rule is not valid.
  static Result<std::unique_ptr<LockGate>> create(const LockGateOptions& options,
                                                  std::uint64_t incarnation,
                                                  lock::LockServer::Start start, Instant now);
  ~LockGate();
  LockGate(const LockGate&) = delete;
  LockGate& operator=(const LockGate&) = delete;

  // ---- the transport ----
  void connect(Connection connection, const Attributes& who, std::string_view principal,
               Instant now);
  void disconnect(Connection connection, Instant now);
  // False: the peer violated the protocol. Send the messages of take(), then close.
  bool receive(Connection connection, lock::ClientMessage message, Instant now);
  std::vector<Connection>& dirty() { return server_.dirty(); }
  lock::ServerMessage take(Connection connection) { return server_.take(connection); }

  // ---- time ----
  // Runs requests that may run, and everything that is due. Call after each receive(), and
  // at next_turn().
  void turn(Instant now);
  Instant next_turn() const { return next_turn_; }

  lock::LockServer& server() { return server_; }
  const lock::LockServer& server() const { return server_; }
  const Target& target() const { return target_; }
  std::size_t gated() const { return target_.queued(); }

 private:
  struct Operation : Request {
    lock::ClientOp op;
    Connection connection = 0;
    RingLink<Operation> of_connection;
  };
  struct Link {
    Attributes who;
    ClassHint enqueue_hint;
    ClassHint cancel_hint;
    ClassHint convert_hint;
    Ring<Operation, &Operation::of_connection> waiting;
    std::size_t enqueues = 0;
    std::size_t cancels = 0;
    std::size_t converts = 0;

    std::size_t& count_of(lock::ClientOp::Kind kind);
    ClassHint& hint_of(lock::ClientOp::Kind kind);
  };

  LockGate(const LockGateOptions& options, std::uint64_t incarnation, lock::LockServer::Start start,
           Instant now);
  void admit(Connection connection, Link& link, lock::ClientOp op, Instant now);
  void leave(Link& link, Operation& operation);
  Operation* take_operation();

  lock::LockServer server_;
  Target target_;
  std::size_t waiting_max_;
  std::vector<std::unique_ptr<Operation>> operations_;  // all operations
  std::vector<Operation*> free_;
  absl::flat_hash_map<Connection, std::unique_ptr<Link>> links_;
  Instant next_turn_{};
};

}  // namespace weir::cluster
