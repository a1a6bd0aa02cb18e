// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_gate.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"
#include "weir/classify/opcode.h"
#include "weir/serve/options.h"
#include "weir/serve/target_port.h"
#include "weir/target/nrs_text.h"

namespace weir::cluster {
namespace {

using Kind = lock::ClientOp::Kind;

std::uint32_t opcode_of(Kind kind) {
  static const std::uint32_t enqueue = opcode_number("ldlm_enqueue").value();
  static const std::uint32_t cancel = opcode_number("ldlm_cancel").value();
  static const std::uint32_t convert = opcode_number("ldlm_convert").value();
  return kind == Kind::kEnqueue ? enqueue : kind == Kind::kCancel ? cancel : convert;
}

bool is_gated(const lock::ClientOp& op) {
  return op.kind == Kind::kEnqueue || op.kind == Kind::kCancel || op.kind == Kind::kConvert;
}

Target::Options target_options(const LockGateOptions& options) {
  Target::Options target;
  target.gate.nodemaps = nodemaps_named(options.nodemaps);
  target.gate.rules.watched_queues = serve::kWatchedQueues;
  target.timed_jobs_max = serve::kTimedJobs;
  return target;
}

}  // namespace

Result<std::unique_ptr<LockGate>> LockGate::create(const LockGateOptions& options,
                                                   std::uint64_t incarnation,
                                                   lock::LockServer::Start start, Instant now) {
  WEIR_ASSERT(options.secret_of != nullptr);
  std::unique_ptr<LockGate> made(new LockGate(options, incarnation, start, now));
  if (auto done = write_nrs_policies(made->target_, options.policy, now); !done) {
    return tl::unexpected(done.error());
  }
  if (auto done = made->target_.apply_rules(options.rules, now); !done) {
    return tl::unexpected(done.error());
  }
  return made;
}

LockGate::LockGate(const LockGateOptions& options, std::uint64_t incarnation,
                   lock::LockServer::Start start, Instant now)
    : server_(options.server, incarnation, start, now, options.secret_of),
      target_(target_options(options), now),
      waiting_max_(options.server.waiting_max) {
  if (options.trace == nullptr) return;
  target_.record(&options.trace->add_target({.name = std::string(serve::LockOptions::kService),
                                             .options = target_options(options),
                                             .nodemaps = options.nodemaps,
                                             .made_at = now}));
}

LockGate::~LockGate() {
  target_.record(nullptr);  // calls of the destructor are not recorded
  while (!links_.empty()) disconnect(links_.begin()->first, Instant::max());
}

// ---- connections ----

void LockGate::connect(Connection connection, const Attributes& who, std::string_view principal,
                       Instant now) {
  auto link = std::make_unique<Link>();
  link->who = who;
  links_.insert_or_assign(connection, std::move(link));
  server_.connect(connection, now, principal);
}

void LockGate::disconnect(Connection connection, Instant now) {
  const auto found = links_.find(connection);
  if (found == links_.end()) return;
  Link& link = *found->second;
  while (!link.waiting.empty()) {
    Operation& operation = link.waiting.front();
    target_.withdraw(operation, now);
    leave(link, operation);
  }
  links_.erase(found);
  server_.disconnect(connection);
}

bool LockGate::receive(Connection connection, lock::ClientMessage message, Instant now) {
  const auto found = links_.find(connection);
  if (found == links_.end()) return false;
  const auto gated = std::stable_partition(message.ops.begin(), message.ops.end(),
                                           [](const auto& op) { return !is_gated(op); });
  std::vector<lock::ClientOp> later(std::make_move_iterator(gated),
                                    std::make_move_iterator(message.ops.end()));
  message.ops.erase(gated, message.ops.end());
  const bool is_fine = server_.receive(connection, message, now);
  if (is_fine) {
    for (lock::ClientOp& op : later) admit(connection, *found->second, std::move(op), now);
  }
  next_turn_ = now;
  return is_fine;
}

// ---- operations ----

LockGate::Operation* LockGate::take_operation() {
  if (free_.empty()) {
    operations_.push_back(std::make_unique<Operation>());
    return operations_.back().get();
  }
  Operation* const operation = free_.back();
  free_.pop_back();
  return operation;
}

std::size_t& LockGate::Link::count_of(Kind kind) {
  return kind == Kind::kEnqueue ? enqueues : kind == Kind::kCancel ? cancels : converts;
}

ClassHint& LockGate::Link::hint_of(Kind kind) {
  return kind == Kind::kEnqueue ? enqueue_hint : kind == Kind::kCancel ? cancel_hint : convert_hint;
}

void LockGate::admit(Connection connection, Link& link, lock::ClientOp op, Instant now) {
  std::size_t& count = link.count_of(op.kind);
  if (count >= waiting_max_) {
    if (op.kind != Kind::kCancel) {
      server_.refuse(connection, op, lock::Refusal::kTooMany);
    } else {
      server_.perform(connection, op);
    }
    return;
  }
  const bool is_ordered = op.kind == Kind::kConvert && count > 0;
  const Head head = server_.is_return(connection, op) && !is_ordered ? Head::kHigh : Head::kRegular;
  ++count;
  Operation* const operation = take_operation();
  operation->attributes = link.who;
  operation->attributes.opcode = opcode_of(op.kind);
  operation->operation = OperationKind::kLock;
  operation->hint = &link.hint_of(op.kind);
  operation->op = std::move(op);
  operation->connection = connection;
  link.waiting.push_back(*operation);
  target_.admit(*operation, head, now);
}

void LockGate::leave(Link& link, Operation& operation) {
  --link.count_of(operation.op.kind);
  link.waiting.erase(operation);
  free_.push_back(&operation);
}

void LockGate::turn(Instant now) {
  Instant next = kNever;
  for (;;) {
    const Decision decision = target_.next(now);
    if (decision.kind() != Decision::Kind::kRun) {
      if (decision.kind() == Decision::Kind::kWait) next = decision.until();
      break;
    }
    auto& operation = static_cast<Operation&>(decision.request());
    const auto link = links_.find(operation.connection);
    WEIR_ASSERT(link != links_.end());
    server_.perform(operation.connection, operation.op);
    target_.complete(operation, now);
    leave(*link->second, operation);
  }
  if (server_.next_tick() <= now) server_.tick(now);
  next_turn_ = std::min(next, server_.next_tick());
}

}  // namespace weir::cluster
