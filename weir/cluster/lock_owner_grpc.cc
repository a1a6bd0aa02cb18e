// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_owner_grpc.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <poll.h>

#include "weir/base/assert.h"
#include "weir/base/units.h"
#include "weir/host/clock.h"
#include "weir/serve/client_identity.h"
#include "weir/serve/event_log.h"

namespace weir::cluster {
namespace {

using grpc::StatusCode;

// 128 bits that only the holder of the key can compute.
lock::SecretOf secrets_of(const host::Key& key) {
  return [key](std::uint64_t client, std::string_view principal) {
    const host::Digest digest = host::keyed_digest(key, fmt::format("{} {}", client, principal));
    lock::SessionSecret secret;
    std::copy_n(digest.begin(), secret.size(), secret.begin());
    return secret;
  };
}

bool says_go_away(const lock::ServerMessage& message) {
  return std::any_of(message.ops.begin(), message.ops.end(), [](const lock::ServerOp& op) {
    return op.kind == lock::ServerOp::Kind::kGoAway;
  });
}

}  // namespace

LockGateOptions gate_options(const LockServiceOptions& options, const host::Key& key,
                             serve::TraceFile* trace) {
  LockGateOptions gate;
  gate.trace = trace;
  gate.secret_of = secrets_of(key);
  gate.server = options.lock.server;
  gate.policy = options.lock.policy;
  gate.rules = options.lock.rules;
  gate.nodemaps.reserve(options.nodemaps.size());
  for (const serve::NodemapOptions& one : options.nodemaps) gate.nodemaps.push_back(one.name);
  return gate;
}

void LockService::Owner::wait() {
  const auto pressure = pressure_.waits();
  std::array<pollfd, 3> waits{pollfd{letters_.fd(), POLLIN, 0}, pressure[0], pressure[1]};
  Instant until = trace_ == nullptr ? kNever : trace_->wakes_at();
  if (gate_ != nullptr && is_proven()) until = std::min(until, gate_->next_turn());
  if (!newcomers_.empty()) until = std::min(until, newcomers_.front().opened + hello_time());
  const Nanoseconds left =
      std::clamp(until - host::boot_now(), Nanoseconds{0}, Nanoseconds{std::chrono::seconds{3600}});
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec span{seconds.count(), (left - seconds).count()};
  if (ppoll(waits.data(), waits.size(), &span, nullptr) <= 0) return;
  if (waits[0].revents != 0) letters_.clear();
  // The kernel reports a trigger once, to the poll: use its result.
  if (pressure_.take(waits[1].revents, waits[2].revents)) relieve();
}

void LockService::Owner::relieve() {
  if (gate_ == nullptr) return;
  lock::LockServer& server = gate_->server();
  server.pool().relieve(host::boot_now(), static_cast<std::int64_t>(server.sessions()));
}

void LockService::Owner::run() {
  while (!is_over_) {
    wait();
    std::vector<LockLetter> letters = letters_.take();
    // After they were taken: were this process stopped between the two, messages that arrived later
    // would count as received while the term was proven.
    now_ = host::boot_now();
    for (LockLetter& letter : letters) handle(letter);
    end_silent();
    if (gate_ != nullptr && is_proven()) {
      for (LockLetter& letter : std::exchange(held_back_, {})) receive(*letter.stream, letter);
      gate_->turn(now_);
      flush_dirty();
    }
    if (trace_ != nullptr) trace_->turn(now_);
  }
  leave_in_order();
  for (LockLetter& letter : letters_.close()) handle(letter);
  if (trace_ != nullptr) trace_->finish();
}

void LockService::Owner::handle(LockLetter& letter) {
  LockStream* const stream = letter.stream;
  switch (letter.kind) {
    case LockLetter::Kind::kOpened:
      open(*stream);
      return;
    case LockLetter::Kind::kRead:
      receive(*stream, letter);
      return;
    case LockLetter::Kind::kReadFailed:
      finish(*stream, grpc::Status::OK);
      return;
    case LockLetter::Kind::kWritten:
      stream->is_writing = false;
      if (stream->is_finished) return;
      if (stream->is_ending) {
        finish(*stream, grpc::Status::OK);
      } else if (stream->has_news) {
        flush(*stream);
      }
      return;
    case LockLetter::Kind::kDone:
      streams_.erase(stream);
      return;
    case LockLetter::Kind::kCall:
      letter.call();
      return;
    case LockLetter::Kind::kStop:
      is_stopping_ = true;
      end_streams_with(stopping());
      return;
    case LockLetter::Kind::kExit:
      is_over_ = true;
      return;
  }
}

void LockService::Owner::open(LockStream& stream) {
  streams_.emplace(&stream, &stream);
  if (is_stopping_) return finish(stream, stopping());
  if (gate_ == nullptr) return finish(stream, elsewhere());
  if (streams_.size() > options_.lock.server.sessions_max + kStreamsSpare) {
    return finish(stream, {StatusCode::RESOURCE_EXHAUSTED, "too many streams are open"});
  }
  stream.opened = now_;
  newcomers_.push_back(stream);
}

void LockService::Owner::end_silent() {
  while (!newcomers_.empty() && newcomers_.front().opened + hello_time() <= now_) {
    finish(newcomers_.front(), {StatusCode::DEADLINE_EXCEEDED, "expected a hello"});
  }
}

// Checks whether a client is accepted, and determines its identity.
bool LockService::Owner::admit(LockStream& stream, const std::string& job) {
  serve::Claims claims;
  if (job.size() > JobId::kSizeMax) {
    finish(stream, grpc::Status(StatusCode::INVALID_ARGUMENT, "a job has at most 31 bytes"));
    return false;
  }
  if (!job.empty()) claims.job = JobId(job);
  const auto who =
      serve::attributes_of(identity_of(stream.peer()), claims, options_.claims, options_.nodemaps);
  if (!who) {
    finish(stream, grpc::Status(StatusCode::PERMISSION_DENIED, who.error().what));
    return false;
  }
  stream.number = ++numbers_;
  by_number_.emplace(stream.number, &stream);
  gate_->connect(stream.number, *who, stream.principal(), now_);
  return true;
}

void LockService::Owner::receive(LockStream& stream, LockLetter& letter) {
  if (stream.is_finished) return;
  if (stream.newcomer.is_linked()) newcomers_.erase(stream);
  if (!is_proven()) {
    held_back_.push_back(std::move(letter));  // one of each stream
    return;
  }
  if (!letter.message) {
    return finish(stream,
                  grpc::Status(StatusCode::INVALID_ARGUMENT, "not a valid batch of weir.lock.v1"));
  }
  if (stream.number == 0 && !admit(stream, letter.job)) return;
  const bool is_fine = gate_->receive(stream.number, *std::move(letter.message), now_);
  if (is_fine) stream.read();
}

void LockService::Owner::flush_dirty() {
  for (const LockGate::Connection number : std::exchange(gate_->dirty(), {})) {
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) continue;
    found->second->has_news = true;
    if (!found->second->is_writing) flush(*found->second);
  }
}

void LockService::Owner::flush(LockStream& stream) {
  stream.has_news = false;
  const lock::ServerMessage message = gate_->take(stream.number);
  stream.is_ending = says_go_away(message);
  stream.is_writing = true;
  stream.write(message);
}

void LockService::Owner::finish(LockStream& stream, const grpc::Status& status) {
  if (std::exchange(stream.is_finished, true)) return;
  if (stream.newcomer.is_linked()) newcomers_.erase(stream);
  std::erase_if(held_back_, [&](const LockLetter& one) { return one.stream == &stream; });
  if (stream.number != 0) {
    gate_->disconnect(stream.number, now_);
    by_number_.erase(stream.number);
    stream.number = 0;
  }
  stream.Finish(status);
}

// If no lock is granted and every possible holder has reported, the next server needs no
// grace period.
void LockService::Owner::leave_in_order() {
  if (gate_ == nullptr) return;
  const lock::LockServer& server = gate_->server();
  if (server.is_recovering() || server.table().granted() > 0) return;
  state_.leave();
}

// ---- in a cluster ----

void LockService::Owner::end_streams_with(const grpc::Status& status) {
  for (auto& [each, owned] : streams_) finish(*each, status);
}

grpc::Status LockService::Owner::elsewhere() const {
  return {StatusCode::UNAVAILABLE, away().what};
}

Error LockService::Owner::away() const {
  if (seen_.active.empty()) {
    return {std::errc::resource_unavailable_try_again, std::string(kLockNamespace),
            "no lock server is active at the moment",
            "check that etcd answers: see the log of the lock servers"};
  }
  return {std::errc::resource_unavailable_try_again, std::string(kLockNamespace),
          fmt::format("this server is a standby; the active lock server is {} ({})", seen_.active,
                      seen_.address),
          "ask that one"};
}

void LockService::Owner::lead(const LockElection::Lead& lead) {
  if (has_resigned_) return;
  if (auto noted = state_.follow(lead.next.term, lead.key); !noted) {
    serve::EventLog::say("locks: " + noted.error().message());
  }
  LockServiceOptions options = options_;
  options.lock.server.grace = lead.next.grace;
  auto gate = LockGate::create(gate_options(options, lead.key, nullptr), lead.next.term,
                               lead.next.start, now_);
  WEIR_ASSERT(gate.has_value());  // the options were checked by create()
  gate_ = *std::move(gate);
  if (!lead.next.clients.empty()) gate_->server().await(lead.next.clients);
  role_ = lock::Role::kActive;
  proven_until_ = lead.proven_until;
  serve::EventLog::say(fmt::format("locks: this server is active in term {}{}", lead.next.term,
                                   lead.next.start == lock::LockServer::Start::kFresh
                                       ? ""
                                       : fmt::format("; new locks wait for replays, for at most {}",
                                                     print_duration(lead.next.grace))));
}

void LockService::Owner::step_down() {
  if (gate_ == nullptr) return;
  serve::EventLog::say(fmt::format("locks: this server is no longer active (term {})",
                                   gate_->server().incarnation()));
  role_ = lock::Role::kStandby;
  end_streams_with({StatusCode::UNAVAILABLE, "this server is no longer active"});
  held_back_.clear();
  gate_.reset();
}

void LockService::Owner::see(const LockElection::Seen& seen) {
  seen_ = seen;
  if (seen.term == 0) return;
  if (auto noted = state_.follow(seen.term, seen.key); !noted) {
    serve::EventLog::say("locks: " + noted.error().message());
  }
}

std::optional<lock::Handover> LockService::Owner::resign() {
  has_resigned_ = true;
  if (gate_ == nullptr) return std::nullopt;
  lock::Handover left = lock::handover_of(gate_->server());
  leave_in_order();
  step_down();
  return left;
}

// ---- looking ----

absl::flat_hash_map<std::uint64_t, const LockStream*> LockService::Owner::streams_by_client()
    const {
  absl::flat_hash_map<std::uint64_t, const LockStream*> found;
  gate_->server().visit_sessions([&](const lock::LockServer::Seen& seen) {
    const auto stream = by_number_.find(seen.connection);
    if (stream != by_number_.end()) found.emplace(seen.client, stream->second);
  });
  return found;
}

lock::NamespaceView LockService::Owner::look() const {
  lock::NamespaceView view;
  if (gate_ != nullptr) {
    view = lock::look(gate_->server(), kLockNamespace, now_);
  } else {
    view.name = kLockNamespace;
  }
  view.role = role_;
  view.active = role_ == lock::Role::kAlone ? std::string() : seen_.active;
  if (gate_ == nullptr) return view;
  const auto streams = streams_by_client();
  for (lock::ClientView& client : view.top) {
    if (const auto found = streams.find(client.client); found != streams.end()) {
      client.peer = peer_text(found->second->peer());
    }
  }
  return view;
}

lock::LockList LockService::Owner::list(const lock::ListOptions& options) const {
  lock::LockList list = lock::list_locks(gate_->server(), options);
  const auto streams = streams_by_client();
  for (lock::LockView& lock : list.locks) {
    if (const auto found = streams.find(lock.client); found != streams.end()) {
      lock.peer = peer_text(found->second->peer());
    }
  }
  return list;
}

lock::LockStats LockService::Owner::stats() const {
  return {.view = look(),
          .incarnation = gate_ == nullptr ? seen_.term : gate_->server().incarnation(),
          .lease = options_.lock.server.lease,
          .gated = gate_ == nullptr ? 0 : gate_->gated()};
}

}  // namespace weir::cluster
