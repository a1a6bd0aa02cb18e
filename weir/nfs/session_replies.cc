// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/nfs/codec/answers.h"
#include "weir/nfs/codec/callback.h"
#include "weir/nfs/codec/mount.h"
#include "weir/nfs/nfs_session.h"

namespace weir::nfs {

void NfsSession::from_server(Input in) {
  heard_at_ = port_.now();
  gateway_.heard(heard_at_);
  silent_since_.reset();
  is_silence_noted_ = false;
  const Input received = in;
  while (!in.empty() && !is_closed_) {
    if (is_opaque_) {
      ToClient{*this, received}.append(in);
      replied_ += in.size();
      break;
    }
    const RecordEvent piece = from_server_.next(in);
    if (piece.kind == RecordEvent::Kind::kBreak) {
      end_passing();
      port_.note(
          fmt::format("server {} sent {}; disconnected", server_.text, describe(piece.reason)));
      has_server_ended_ = true;
      return port_.hang_up();
    }
    if (piece.kind != RecordEvent::Kind::kPiece) break;
    if (!take_reply(piece, received)) break;
  }
  end_passing();
  if (!is_closed_) account_replies();
}

// Sends what is passed on, or leaves it to the queue.
void NfsSession::end_passing() {
  if (passed_.empty()) return;
  const Input bytes = std::exchange(passed_, {});
  to_client_.append(bytes.subspan(port_.send_to_client(bytes)));
}

// False: the connection is over.
bool NfsSession::take_reply(const RecordEvent& piece, Input received) {
  if (is_reply_begun_) {
    is_reply_begun_ = !piece.is_last;
    ToClient to{*this, received};
    reply_writer_.add(to, piece.bytes, piece.is_last);
    return true;
  }
  const auto bytes = reply_head_.add(piece, from_server_);
  if (!bytes) return true;
  is_reply_begun_ = !piece.is_last;
  begin_reply(*bytes, piece.is_last, received);
  if (is_closed_) return false;
  reply_head_.clear();
  return true;
}

void NfsSession::begin_reply(Bytes bytes, bool is_whole, Input received) {
  const MessageView message{bytes, is_whole ? bytes.size() : from_server_.message_length_max()};
  const auto length =
      is_whole ? static_cast<std::uint32_t>(bytes.size()) : from_server_.message_length();
  const auto type = message_type(bytes);
  if (type == MessageType::kCall) look_for_recalls(message);
  const auto found = type == MessageType::kReply ? calls_.find(load_be<std::uint32_t>(bytes.data()))
                                                 : calls_.end();
  // A reply can only belong to a call that was forwarded to the server.
  const bool is_known = found != calls_.end() && found->second->state == HeldCall::State::kSent;
  if (type != MessageType::kCall && !is_known) ++gateway_.counters().replies_unmatched;
  ToClient to{*this, received};
  if (!is_known) return reply_writer_.begin(to, bytes, length);
  const PendingCall& pending = found->second->pending;
  const Reply reply = read_reply(message, pending);
  std::array<std::byte, kAnswerMax> buffer;
  if (const auto mended = mend_reply(buffer, message, pending)) {
    end_passing();
    to_client_.append(*mended);
  } else {
    reply_writer_.begin(to, bytes, length);
  }
  learn(reply);
  if (!mounts_.empty()) learn_export(message, pending.xid);
  const bool is_probe = found->second->is_tls_probe;
  settle(found, reply);
  if (is_probe && is_whole && begin_tls(message)) is_opaque_ = true;
}

// Whether the following bytes are TLS. A client that has not waited for this reply is disconnected:
// its next bytes would be read as something else than the server reads.
bool NfsSession::begin_tls(const MessageView& message) {
  if (!starts_tls(read_reply_header(message))) return false;
  if (!calls_.empty() || from_client_.is_inside()) {
    end_passing();
    port_.note("disconnected: it has sent calls before TLS was established");
    has_server_ended_ = true;
    port_.hang_up();
    return false;
  }
  ++gateway_.counters().tls_passed;
  warn_once(Gateway::Mark::kTls, "uses TLS: only its address and its bytes are limited");
  return true;
}

void NfsSession::settle(Calls::iterator found, const Reply& reply) {
  HeldCall& call = *found->second;
  const std::uint64_t id = std::exchange(call.request_id, 0);
  if (--call.copies == 0) end_call(found);
  give_back_room();
  if (id == 0) return;
  --slots_held_;
  const std::uint64_t operations = std::clamp<std::uint64_t>(reply.moved.operations, 1, UINT32_MAX);
  port_.answer(id, {.moved = weir::Bytes{std::min(reply.moved.bytes, kChargeMax)},
                    .operations = static_cast<std::uint32_t>(operations),
                    .is_forwarded = true});
}

void NfsSession::learn(const Reply& reply) {
  if (!reply.compound) return;
  const CompoundReply& compound = *reply.compound;
  if (compound.session) {
    SessionId id{};
    std::ranges::copy(compound.session->session_id, id.begin());
    gateway_.set_slots(id, compound.session->slots);
  }
  if (compound.slot) {
    SessionId id{};
    std::ranges::copy(compound.slot->session_id, id.begin());
    const std::uint32_t highest = compound.slot->target_highest_slot;
    if (highest != highest_slot_ || id != slots_session_) {
      gateway_.set_highest_slot(id, highest);
      slots_session_ = id;
      highest_slot_ = highest;
    }
  }
  if (compound.lease_seconds && *compound.lease_seconds > 0) {
    gateway_.set_lease(std::chrono::seconds{*compound.lease_seconds});
  }
  if (compound.session) gateway_.mark(Gateway::Mark::kSession, client_.nid);
  if (compound.has(Op::kExchangeId)) has_client_id_ = true;
  if (compound.has(Op::kLayoutGet)) {
    ++gateway_.counters().layouts;
    warn_once(Gateway::Mark::kLayouts,
              "the server grants pNFS layouts: data bypasses the gateway; turn pNFS off there");
  }
  if (compound.status == kMoved) {
    ++gateway_.counters().moved;
    warn_once(Gateway::Mark::kReferral,
              "the server refers the client to another server, past the gateway");
  }
}

void NfsSession::learn_export(const MessageView& message, std::uint32_t xid) {
  const auto found = mounts_.find(xid);
  if (found == mounts_.end()) return;
  const std::string path = std::move(found->second);
  mounts_.erase(found);
  const ReplyHeader header = read_reply_header(message);
  const auto results = open_results(message, header, GssService::kNone);
  if (!message.is_whole() || !header.succeeded() || !results) return;
  const MountReply mounted = read_mount_reply(*results);
  if (mounted.status != 0 || mounted.end != XdrState::kGood) return;
  switch (gateway_.learn_export(path, mounted.file_handle)) {
    case Exports::Lesson::kNew:
      port_.note(
          fmt::format("has mounted {}: calls on its files belong to this export", quote(path)));
      break;
    case Exports::Lesson::kUnknownForm:
      port_.note(
          fmt::format("has mounted {}, whose file handles have no known form: rules can "
                      "name the export if --export-handle does",
                      quote(path)));
      break;
    case Exports::Lesson::kKnown:
    case Exports::Lesson::kNotAnExport:
      break;
  }
}

// A Linux client that has mounted the server directly detects that the gateway is the same server
// (EXCHANGE_ID), and uses its existing connection.
void NfsSession::look_for_bypass() {
  if (!has_client_id_ || has_file_calls_ || stops_ || has_server_ended_) return;
  if (gateway_.has(Gateway::Mark::kSession, client_.nid)) return;
  ++gateway_.counters().bypasses;
  warn_once(Gateway::Mark::kBypass,
            "has left without a session: it probably mounts the server directly too, and its calls "
            "bypass the gateway; block the direct path");
}

void NfsSession::look_for_recalls(const MessageView& message) {
  ++gateway_.counters().callbacks;
  const CallHeader header = read_call_header(message);
  const auto arguments = open_arguments(message, header);
  if (!is_callback(header) || !arguments) return;
  const CallbackCall callback = read_callback(*arguments);
  const std::size_t recalls = std::min<std::size_t>(callback.recalls, kRecallsMax);
  for (const Bytes file_handle : std::span(callback.recalled).first(recalls)) {
    gateway_.recall(client_.nid, file_handle, port_.now() + gateway_.lease());
  }
}

void NfsSession::server_ended(std::string_view reason) {
  has_server_ended_ = true;
  const bool was_reached = reason.find("cannot be reached") == std::string_view::npos;
  ++(was_reached ? gateway_.counters().server_closed : gateway_.counters().server_unreachable);
  if (!was_reached || !calls_.empty()) {
    port_.note(fmt::format("disconnected: {}, {} calls unanswered", reason, calls_.size()));
  }
  port_.wake_at(port_.now() + kWatchEvery);
  port_.hang_up();
}
}  // namespace weir::nfs
