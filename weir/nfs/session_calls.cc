// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/hash.h"
#include "weir/nfs/call_class.h"
#include "weir/nfs/codec/answers.h"
#include "weir/nfs/codec/mount.h"
#include "weir/nfs/nfs_session.h"

namespace weir::nfs {
namespace {

using Event = NfsSession::Event;

constexpr std::size_t kDigestBytes = 256;  // of a call, to recognize a retransmission

std::uint64_t digest_of(Bytes bytes) {
  bytes = bytes.first(std::min(bytes.size(), kDigestBytes));
  std::uint64_t hash = bytes.size();
  for (; bytes.size() >= 16; bytes = bytes.subspan(16)) {
    hash = hash_words(hash + load_be<std::uint64_t>(bytes.data()),
                      load_be<std::uint64_t>(bytes.data() + 8));
  }
  for (const std::byte byte : bytes) hash = hash_words(hash, static_cast<std::uint64_t>(byte));
  return hash;
}
}  // namespace

NfsSession::Event NfsSession::next(Input& in, IoRequest& request) {
  if (has_server_ended_) {
    in = {};
    return Event::kNeedBytes;
  }
  if (is_opaque_) return next_opaque(in, request);
  for (;;) {
    if (stops_ && !from_client_.is_inside()) return Event::kEnd;
    if (in.empty()) return Event::kNeedBytes;
    if (!make_room(in.size())) return Event::kNoRoom;
    const RecordEvent piece = from_client_.next(in);
    last_input_ = port_.now();
    if (piece.kind == RecordEvent::Kind::kBreak) return break_off(describe(piece.reason));
    if (piece.kind == RecordEvent::Kind::kPiece) {
      if (const auto event = take(piece, request)) return *event;
    }
    if (from_client_.is_inside()) watch();
  }
}

NfsSession::Event NfsSession::break_off(std::string_view problem) {
  problem_ = problem;
  return Event::kBreak;
}

std::optional<NfsSession::Event> NfsSession::take(const RecordEvent& piece, IoRequest& request) {
  if (is_begun_) {
    continue_message(piece);
    return std::nullopt;
  }
  const auto bytes = call_head_.add(piece, from_client_);
  if (!bytes) return std::nullopt;
  is_begun_ = !piece.is_last;
  rest_ = Rest::kNowhere;
  auto event = begin(*bytes, piece.is_last, request);
  call_head_.clear();
  return event;
}

std::optional<NfsSession::Event> NfsSession::begin(Bytes bytes, bool is_whole, IoRequest& request) {
  const MessageView message{bytes, is_whole ? bytes.size() : from_client_.message_length_max()};
  if (message_type(bytes) == MessageType::kReply) {  // to a callback
    pass(message);
    return std::nullopt;
  }
  ++gateway_.counters().calls;
  return begin_call(message, request);
}

void NfsSession::continue_message(const RecordEvent& piece) {
  is_begun_ = !piece.is_last;
  switch (rest_) {
    case Rest::kToCall:
      if (arriving_->rest == nullptr) arriving_->rest = std::make_unique<ByteQueue>();
      arriving_->rest->append(piece.bytes);
      held_ += piece.bytes.size();
      if (piece.is_last) {
        arriving_->length = from_client_.message_length();
        arriving_ = nullptr;
      }
      break;
    case Rest::kToServer: {
      ToServer to{*this};
      call_writer_.add(to, piece.bytes, piece.is_last);
      port_.transfer();
      if (piece.is_last) end_stream();
      break;
    }
    case Rest::kNowhere:
      break;
  }
}

// Handles a retransmission. None: it is a different call.
std::optional<NfsSession::Event> NfsSession::repeat(HeldCall& first, const MessageView& message,
                                                    std::uint64_t digest) {
  if (first.digest != digest || first.length != length_of(message)) {
    return break_off("a call with the xid of another one that is not answered yet");
  }
  if (first.state != HeldCall::State::kSent) {
    ++gateway_.counters().duplicates_dropped;
    return std::nullopt;
  }
  ++gateway_.counters().duplicates_forwarded;
  ++first.copies;
  pass(message);
  return std::nullopt;
}

std::optional<NfsSession::Event> NfsSession::begin_call(const MessageView& message,
                                                        IoRequest& request) {
  const Call call = read_call(message);
  if (call.is_tls_probe() && !gateway_.options().passes_tls) {
    refuse_tls(call);
    return std::nullopt;
  }
  const std::uint64_t digest = digest_of(message.bytes);
  if (const auto found = calls_.find(call.header.xid); found != calls_.end()) {
    return repeat(*found->second, message, digest);
  }
  if (calls_.size() >= kCallsMax) return break_off("too many unanswered calls");
  HeldCall& held = hold(message, call, digest);
  if (is_mount(call.header)) note_mount(message, call);
  if (call.compound) {
    if (call.compound->has(Op::kDelegReturn)) gateway_.returned(client_.nid, call.file_handle);
    if (!call.compound->client_owner.empty()) look_for_owner(*call.compound);
  }
  const bool has_slot = call.compound && call.compound->slot;
  if (call.urgency != Urgency::kFree || has_slot) has_file_calls_ = true;
  const bool at_once = passes_at_once(call);
  if (at_once && call.urgency == Urgency::kFree) {
    ++gateway_.counters().free;
    pass(message);
    sent(held);
    return std::nullopt;
  }
  fill(call, request);
  request.is_exempt = at_once;
  if (at_once) {
    ++gateway_.counters().exempt;
  } else if (must_delay(call, request, held)) {
    delay(message, call, held);
    return std::nullopt;
  }
  hold_message(held, message.bytes);
  if (held.is_gss) ++gss_parked_;
  if (!message.is_whole()) {
    rest_ = Rest::kToCall;
    arriving_ = &held;
  }
  return Event::kRequest;
}

HeldCall& NfsSession::hold(const MessageView& message, const Call& call, std::uint64_t digest) {
  std::unique_ptr<HeldCall>& place = calls_[call.header.xid];
  if (spares_.empty()) {
    place = std::make_unique<HeldCall>();
  } else {
    place = std::move(spares_.back());
    spares_.pop_back();
  }
  HeldCall& held = *place;
  held.pending = pending_of(call);
  held.digest = digest;
  held.length = length_of(message);
  held.is_gss = call.header.credential.gss.has_value();
  held.is_tls_probe = call.is_tls_probe();
  held_ += held.size();
  return held;
}

// The call is answered.
void NfsSession::end_call(Calls::iterator call) {
  HeldCall& held = *call->second;
  held_ -= held.size();
  if (spares_.size() < kSparesMax) {
    held.clear();
    spares_.push_back(std::move(call->second));
  }
  calls_.erase(call);
}

void NfsSession::hold_message(HeldCall& held, Bytes bytes) {
  held_ -= held.size();
  held.is_record = held.length.has_value();
  held.message.reserve(kRecordMarkBytes + bytes.size());
  if (held.is_record) {
    const auto mark = record_mark(*held.length);
    held.message.assign(mark.begin(), mark.end());
  }
  held.message.insert(held.message.end(), bytes.begin(), bytes.end());
  held_ += held.size();
}

void NfsSession::hold_record(HeldCall& held, Bytes record) {
  held_ -= held.size();
  held.is_record = true;
  held.message.assign(record.begin(), record.end());
  held_ += held.size();
}

// Whether it is forwarded without waiting. Calls of a GSS context must not overtake many others.
bool NfsSession::passes_at_once(const Call& call) const {
  const bool is_gss = call.header.credential.gss.has_value();
  if (is_gss && call.protocol != Protocol::kNull && gss_parked_ >= kGssParkedMax) return false;
  if (call.urgency != Urgency::kQueued) return true;
  return gateway_.is_recalled(client_.nid, call.file_handle, port_.now());
}

// The job that runs on the client.
std::optional<JobId> NfsSession::host_job() {
  if (const std::uint64_t version = gateway_.jobs_version(); version != jobs_version_) {
    jobs_version_ = version;
    job_ = gateway_.job_of(client_.nid);
  }
  return job_;
}

// Empty: not known.
ExportName NfsSession::export_of(Bytes file_handle) {
  if (const std::uint64_t version = gateway_.exports_version(); version != exports_version_) {
    exports_version_ = version;
    exports_ = gateway_.exports();
  }
  return exports_->empty() ? ExportName() : exports_->find(file_handle);
}

// The reply to MNT has the file handle, but not the path.
void NfsSession::note_mount(const MessageView& message, const Call& call) {
  if (!message.is_whole() || mounts_.size() >= kMountsMax) return;
  const auto arguments = open_arguments(message, call.header);
  const auto path = arguments ? mount_path(*arguments) : std::nullopt;
  if (path) mounts_[call.header.xid] = *path;
}

void NfsSession::fill(const Call& call, IoRequest& request) {
  request.opened = &opened_;
  request.attributes = attributes_of(client_, call);
  const ExportName exported = export_of(call.file_handle);
  if (!exported.empty()) request.attributes.export_name = exported;
  // Calls of a GSS context stay in one queue.
  if (!call.header.credential.gss) {
    if (const auto job = host_job()) request.attributes.job = *job;
  }
  request.operation = call.kind;
  request.bytes = weir::Bytes{std::min(call.cost.bytes, kChargeMax)};
  request.tag = call.header.xid;
  request.is_own = true;
}

bool NfsSession::must_delay(const Call& call, const IoRequest& request, HeldCall& held) {
  if (may_answer(call)) return port_.expected_wait(request) > gateway_.wait_max();
  if (!can_cut(call)) return false;
  ParkedCall parked{.uid = request.attributes.uid,
                    .kind = call.kind,
                    .payload = call.compound->sent,
                    .since = port_.now()};
  std::ranges::copy(call.compound->slot->session_id, parked.session.begin());
  // A write that waits without room for it would keep all users of the connection waiting.
  const std::uint64_t payload = std::min(call.compound->sent, kChargeMax);
  parked.has_memory = payload <= kWholeMax || port_.has_room(payload + kRoomForOthers);
  const Parking parking = gateway_.park(parked, port_.expected_wait(request));
  if (parking == Parking::kParked) held.parked = parked;
  return parking == Parking::kRefused;
}

// The server gets only SEQUENCE; its reply is mended when it arrives. The client sends a write
// again 0.1 s after its refusal, so the refusal may have to wait.
void NfsSession::delay(const MessageView& message, const Call& call, HeldCall& held) {
  ++gateway_.counters().delayed;
  if (may_answer(call)) return answer_later(call);
  std::array<std::byte, kAnswerMax> buffer;
  const Bytes record = cut_call(buffer, message, call);
  hold_record(held, record);
  if (call.kind == OperationKind::kWrite) {
    SessionId session{};
    std::ranges::copy(call.compound->slot->session_id, session.begin());
    held.state = HeldCall::State::kRefused;
    refusals_.push_back({call.header.xid, session, call.compound->sent, port_.now()});
    refuse_due();
    return set_alarm();
  }
  send(held);
}

// Whether an option allows an answer without the server.
bool NfsSession::may_answer(const Call& call) const {
  const serve::NfsOptions& options = gateway_.options();
  return (options.delays_v3 && can_jukebox(call)) || (options.delays_v40 && can_delay(call));
}

void NfsSession::answer_later(const Call& call) {
  std::array<std::byte, kAnswerMax> buffer;
  to_client_.append(call.v3 ? jukebox_reply(buffer, call) : delay_reply(buffer, call));
  end_call(calls_.find(call.header.xid));
  account_replies();
  port_.transfer();
}

// Refuses writes that are due; they are kept for wait_max() at most, like calls that wait.
void NfsSession::refuse_due() {
  const Instant now = port_.now();
  while (!refusals_.empty()) {
    const Refusal& first = refusals_.front();
    refuse_at_ = gateway_.refuse_write(first.session, first.payload, now);
    const Instant end = first.since + gateway_.wait_max();
    if (refuse_at_ > now && end > now && !stops_) {
      refuse_at_ = std::min(refuse_at_, end);
      return;
    }
    refuse_first();
  }
}

void NfsSession::refuse_first() {
  const auto found = calls_.find(refusals_.front().xid);
  refusals_.pop_front();
  if (found != calls_.end()) send(*found->second);
}

void NfsSession::refuse_tls(const Call& call) {
  ++gateway_.counters().tls_refused;
  warn_once(Gateway::Mark::kTls,
            "asks for TLS, which this gateway does not forward: refused; mount without xprtsec=");
  to_client_.append(denied_reply(call.header.xid, kAuthBadCredential));
  account_replies();
  port_.transfer();
}

// Nothing of a call is visible, and all belong to one class: so bytes are the cost, in both
// directions, and a connection that waits is not read.
NfsSession::Event NfsSession::next_opaque(Input& in, IoRequest& request) {
  if (stops_) return Event::kEnd;
  if (in.empty()) return Event::kNeedBytes;
  const Input piece = in.first(std::min(in.size(), kWholeMax));
  if (!piece_.empty() || !make_room(piece.size())) return Event::kNoRoom;
  piece_.assign(piece.begin(), piece.end());
  held_ += piece_.size();
  in = in.subspan(piece.size());
  request.opened = &opened_;
  request.attributes = client_;
  if (const auto job = host_job()) request.attributes.job = *job;
  request.operation = OperationKind::kOther;
  const std::uint64_t bytes = std::min(piece_.size() + replied_, kChargeMax);
  replied_ -= std::min(replied_, bytes);
  request.bytes = weir::Bytes{bytes};
  request.is_own = true;
  return Event::kRequest;
}

void NfsSession::perform_opaque(const IoRequest& request) {
  ToServer{*this}.append(piece_);
  held_ -= piece_.size();
  piece_.clear();
  port_.transfer();
  port_.answer(request.id, {.is_forwarded = true});
  port_.release(0);  // the next piece may be read
}

// Two clients with the same client owner: each makes the server drop the state of the other.
void NfsSession::look_for_owner(const CompoundCall& compound) {
  const auto other = gateway_.other_user(compound.client_owner, client_.nid);
  if (!other) return;
  warn_once(
      Gateway::Mark::kOwner,
      fmt::format("uses the NFSv4 client owner of {}: give each client a host name of its own",
                  print_nid(*other)));
}

// Once for each client.
void NfsSession::warn_once(Gateway::Mark mark, std::string_view text) {
  if (gateway_.mark(mark, client_.nid)) port_.note(text);
}

bool NfsSession::stop() {
  stops_ = true;
  refuse_due();
  return !from_client_.is_inside();
}

// ---- to the server ----

std::optional<std::uint32_t> NfsSession::length_of(const MessageView& message) const {
  if (message.is_whole()) return static_cast<std::uint32_t>(message.length);
  return from_client_.message_length();
}

void NfsSession::pass(const MessageView& message) {
  call_writer_.begin(to_server_, message.bytes, length_of(message));
  if (!message.is_whole()) {
    rest_ = Rest::kToServer;
    is_streaming_ = true;
  }
  port_.transfer();
}

void NfsSession::perform(IoRequest& request, std::span<std::byte> /*room*/) {
  if (is_opaque_) return perform_opaque(request);
  const auto found = calls_.find(static_cast<std::uint32_t>(request.tag));
  WEIR_ASSERT(found != calls_.end(), request.tag);
  HeldCall& call = *found->second;
  call.request_id = request.id;
  ++slots_held_;
  if (call.is_gss) --gss_parked_;
  unpark(call);
  send(call);
  refuse_due();
  const bool is_silent = silent_since_ && gateway_.heard_at() > *silent_since_;
  if (is_silent && slots_held_ > kSilentSlots) give_up_slot(call);
}

void NfsSession::unpark(HeldCall& call) {
  if (!call.parked) return;
  gateway_.unpark(*call.parked, port_.now());
  call.parked.reset();
}

void NfsSession::send(HeldCall& call) {
  if (is_streaming_) {
    call.state = HeldCall::State::kReady;
    ready_.push_back(call.pending.xid);
    return;
  }
  put(call);
}

void NfsSession::put(HeldCall& call) {
  held_ -= call.size();
  if (call.is_record) {
    call_writer_.begin_record(to_server_, call.message);
  } else {
    call_writer_.begin(to_server_, call.message, call.length);
  }
  if (call.rest != nullptr) {
    if (call.length) {
      to_server_.append(std::move(*call.rest));
    } else {
      std::array<iovec, 1> part{};
      while (call.rest->parts(part) == 1) {
        call_writer_.add(to_server_, {static_cast<std::byte*>(part[0].iov_base), part[0].iov_len},
                         false);
        call.rest->drop(part[0].iov_len);
      }
    }
    call.rest.reset();
  }
  call.clear_message();
  held_ += call.size();
  if (arriving_ == &call) {
    arriving_ = nullptr;
    rest_ = Rest::kToServer;
    is_streaming_ = true;
  }
  port_.transfer();
  sent(call);
}

void NfsSession::sent(HeldCall& call) {
  call.state = HeldCall::State::kSent;
  call.sent_at = port_.now();
  watch();
}

void NfsSession::end_stream() {
  is_streaming_ = false;
  while (!ready_.empty() && !is_streaming_) {
    const auto found = calls_.find(ready_.front());
    ready_.pop_front();
    if (found != calls_.end()) put(*found->second);
  }
}

void NfsSession::transferred() {
  account_replies();
  give_back_room();
}

}  // namespace weir::nfs
