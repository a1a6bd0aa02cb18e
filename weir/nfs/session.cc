// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/session.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/hash.h"
#include "weir/nfs/call_class.h"
#include "weir/nfs/codec/answers.h"
#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/callback.h"
#include "weir/nfs/codec/record.h"
#include "weir/nfs/record_writer.h"

namespace weir::nfs {
namespace {

using serve::ByteQueue;
using serve::IoRequest;
using serve::SessionPort;

// A reply that may have to be mended is collected completely.
constexpr std::size_t kReplyWholeMax = std::size_t{4} << 10;
constexpr std::size_t kReplyHeadBytes = std::size_t{1} << 10;
// Beyond this size nothing more is read from the server until the client has read some.
constexpr std::size_t kToClientMax = std::size_t{1} << 20;
constexpr std::size_t kDigestBytes = 256;  // of a call, to recognize a retransmission
constexpr Nanoseconds kWatchEvery = std::chrono::seconds{10};

std::uint64_t digest_of(Bytes bytes) {
  bytes = bytes.first(std::min(bytes.size(), kDigestBytes));
  std::uint64_t hash = bytes.size();
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    hash = hash_words(hash, load_be<std::uint64_t>(bytes.data()));
  }
  for (const std::byte byte : bytes) hash = hash_words(hash, static_cast<std::uint64_t>(byte));
  return hash;
}

// Collects the first bytes of a message until there are enough to classify it.
class Head {
 public:
  Head(std::size_t whole_max, std::size_t enough) : whole_max_(whole_max), enough_(enough) {}

  // None: more bytes are needed. Valid until clear().
  std::optional<Bytes> add(const RecordEvent& piece, const RecordReader& reader) {
    const auto length = reader.message_length();
    const bool needs_all = length && *length <= whole_max_;
    const auto is_enough = [&](Bytes bytes) {
      return piece.is_last || (!needs_all && bytes.size() >= enough_);
    };
    if (bytes_.empty() && is_enough(piece.bytes)) return piece.bytes;
    bytes_.insert(bytes_.end(), piece.bytes.begin(), piece.bytes.end());
    if (is_enough(bytes_)) return Bytes(bytes_);
    return std::nullopt;
  }
  std::size_t size() const { return bytes_.size(); }
  void clear() {
    if (bytes_.capacity() > kReplyWholeMax) {
      bytes_ = {};
    } else {
      bytes_.clear();
    }
  }

 private:
  std::size_t whole_max_;
  std::size_t enough_;
  std::vector<std::byte> bytes_;
};

// A call from its arrival to its reply.
struct HeldCall {
  enum class State : std::uint8_t {
    kQueued,  // in the Target
    kReady,   // its turn has come, and another message is being forwarded
    kSent,
  };
  struct Parked {
    SessionId session;
    std::uint32_t uid;
  };

  PendingCall pending;
  State state = State::kQueued;
  bool is_gss = false;
  bool is_tls_probe = false;
  std::uint32_t copies = 1;      // sent to the server
  std::uint64_t request_id = 0;  // while it holds a slot of the Target
  std::uint64_t digest = 0;
  Instant sent_at;
  std::optional<std::uint32_t> length;  // of the message, once it is known
  std::optional<Parked> parked;
  std::vector<std::byte> message;   // or its first bytes
  std::unique_ptr<ByteQueue> rest;  // of a long one

  std::size_t size() const {
    return sizeof *this + message.size() + (rest == nullptr ? 0 : rest->size());
  }
};

class NfsSession final : public serve::Session {
 public:
  NfsSession(SessionPort& port, Gateway& gateway, const serve::ServerAddress& server,
             bool sends_proxy)
      : port_(port), gateway_(gateway), server_(server), sends_proxy_(sends_proxy) {
    identify();
    const auto& proxies = gateway.options().accepts_proxy;
    awaits_header_ = proxies && proxies->matches(client_.nid);
    const serve::ExportFacts* const facts = port.find_export(gateway.options().name);
    WEIR_ASSERT(facts != nullptr);
    port.open(*facts, opened_);
  }

  void greet(Output& /*out*/) override {
    awaits_header_ ? port_.wake_at(port_.now() + kHeaderMax) : connect();
  }
  Step negotiate(Input& in, Output& out) override;
  Event next(Input& in, IoRequest& request) override;
  void reply(IoRequest& request, const serve::IoResult& /*result*/) override {
    WEIR_ASSERT(false, request.tag);  // all requests are performed here
  }
  void perform(IoRequest& request, std::span<std::byte> room) override;
  std::string_view problem() const override { return problem_; }

  ByteQueue* to_client() override { return &to_client_; }
  ByteQueue* to_server() override { return &to_server_; }
  void transferred() override;
  void from_server(Input in) override;
  bool takes_from_server() const override { return !is_full_; }
  void server_ended(std::string_view reason) override;
  bool stop() override;
  bool is_settled() const override {
    return calls_.empty() && piece_.empty() && to_server_.empty() && !from_server_.is_inside();
  }
  void wake() override;
  void closed() override;

 private:
  // The destination of the rest of a long message.
  enum class Rest : std::uint8_t { kToCall, kToServer, kNowhere };

  void identify() {
    if (const auto identity = port_.identify({})) client_ = *identity;
  }
  void connect();

  // ---- from the client ----
  std::optional<Event> take(const RecordEvent& piece, IoRequest& request);
  std::optional<Event> begin(Bytes bytes, bool is_whole, IoRequest& request);
  void continue_message(const RecordEvent& piece);
  std::optional<Event> begin_call(const MessageView& message, IoRequest& request);
  std::optional<Event> repeat(HeldCall& first, const MessageView& message, std::uint64_t digest);
  HeldCall& hold(const MessageView& message, const Call& call, std::uint64_t digest);
  bool must_delay(const Call& call, const IoRequest& request, HeldCall& held);
  void delay(const MessageView& message, const Call& call, HeldCall& held);
  void refuse_tls(const Call& call);
  Event next_opaque(Input& in, IoRequest& request);
  void perform_opaque(const IoRequest& request);
  void look_for_owner(const CompoundCall& compound);
  void warn_once(Gateway::Mark mark, std::string_view text);
  bool passes_at_once(const Call& call) const;
  void fill(const Call& call, IoRequest& request);
  std::optional<JobId> host_job();
  Event break_off(std::string_view problem);

  // ---- to the server ----
  std::optional<std::uint32_t> length_of(const MessageView& message) const;
  // Forwards a message that does not wait.
  void pass(const MessageView& message);
  void send(HeldCall& call);
  void put(HeldCall& call);
  void sent(HeldCall& call);
  void end_stream();
  void unpark(HeldCall& call);

  // ---- from the server ----
  bool take_reply(const RecordEvent& piece);
  void begin_reply(Bytes bytes, bool is_whole);
  void settle(std::uint32_t xid, const Reply& reply);
  bool begin_tls(const MessageView& message);
  void learn(const Reply& reply);
  void look_for_recalls(const MessageView& message);
  void look_for_bypass();

  // ---- memory ----
  bool make_room(std::size_t more);
  void give_back_room();
  void account_replies();
  void watch();

  SessionPort& port_;
  Gateway& gateway_;
  const serve::ServerAddress& server_;
  const bool sends_proxy_;
  Attributes client_;
  std::optional<JobId> job_;  // of the client's host, as of jobs_version_
  std::uint64_t jobs_version_ = 0;
  serve::OpenedExport opened_;
  ByteQueue to_client_;
  ByteQueue to_server_;

  RecordReader from_client_;
  Head call_head_{kWholeMax, kHeadBytes};
  RecordWriter call_writer_;
  bool is_begun_ = false;  // a long message: its rest follows
  Rest rest_ = Rest::kNowhere;
  HeldCall* arriving_ = nullptr;  // of Rest::kToCall
  bool is_streaming_ = false;     // a message is partly in to_server_
  std::deque<std::uint32_t> ready_;
  absl::flat_hash_map<std::uint32_t, std::unique_ptr<HeldCall>> calls_;  // by xid
  std::uint32_t gss_parked_ = 0;

  RecordReader from_server_;
  Head reply_head_{kReplyWholeMax, kReplyHeadBytes};
  RecordWriter reply_writer_;
  bool is_reply_begun_ = false;

  std::size_t held_ = 0;             // bytes of calls_
  std::size_t charged_ = 0;          // for calls
  std::size_t charged_replies_ = 0;  // for to_client_
  bool is_full_ = false;             // to_client_
  std::optional<Instant> stalled_since_;
  Instant last_input_;
  bool is_watched_ = false;        // a wake is set
  bool has_client_id_ = false;     // EXCHANGE_ID has succeeded
  bool has_file_calls_ = false;    // or an NFS session is used
  bool awaits_header_ = false;     // of a proxy
  std::vector<std::byte> header_;  // the part that has arrived
  // After STARTTLS: bytes of both directions are forwarded as they are. One piece of the client
  // waits at a time.
  bool is_opaque_ = false;
  std::vector<std::byte> piece_;
  std::uint64_t replied_ = 0;  // bytes for the client that are not charged yet
  bool stops_ = false;
  bool has_server_ended_ = false;
  bool is_closed_ = false;
  std::string problem_;
};

// The server gets the address of the client before anything else.
void NfsSession::connect() {
  const serve::Ends ends = port_.ends();
  if (sends_proxy_) to_server_.append(serve::write_proxy_header(ends));
  port_.connect(server_, {gateway_.options().source, ends.client, &gateway_.source_ports()});
}

NfsSession::Step NfsSession::negotiate(Input& in, Output& /*out*/) {
  if (!awaits_header_) return Step::kOpen;
  const std::size_t had = header_.size();
  header_.insert(header_.end(), in.begin(), in.end());
  const serve::ProxyHeader header = serve::read_proxy_header(header_);
  if (header.state == serve::ProxyHeader::State::kNeedBytes) {
    in = {};
    return Step::kNeedBytes;
  }
  if (header.state == serve::ProxyHeader::State::kBad) {
    problem_ = header.problem;
    return Step::kBreak;
  }
  in = in.subspan(header.size - had);
  header_ = {};
  awaits_header_ = false;
  port_.wake_at(kNever);
  ++gateway_.counters().proxy_headers;
  if (header.ends) {
    port_.set_ends(*header.ends);
    identify();
  }
  connect();
  return Step::kOpen;
}

// ---- from the client ----

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
    case Rest::kToServer:
      call_writer_.add(to_server_, piece.bytes, piece.is_last);
      port_.transfer();
      if (piece.is_last) end_stream();
      break;
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
  held.message.assign(message.bytes.begin(), message.bytes.end());
  held_ += held.message.size();
  if (held.is_gss) ++gss_parked_;
  if (!message.is_whole()) {
    rest_ = Rest::kToCall;
    arriving_ = &held;
  }
  return Event::kRequest;
}

HeldCall& NfsSession::hold(const MessageView& message, const Call& call, std::uint64_t digest) {
  auto& held = *(calls_[call.header.xid] = std::make_unique<HeldCall>());
  held.pending = pending_of(call);
  held.digest = digest;
  held.length = length_of(message);
  held.is_gss = call.header.credential.gss.has_value();
  held.is_tls_probe = call.is_tls_probe();
  held_ += held.size();
  return held;
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

void NfsSession::fill(const Call& call, IoRequest& request) {
  request.opened = &opened_;
  request.attributes = attributes_of(client_, call);
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
  if (!can_cut(call)) return false;
  const Nanoseconds wait = port_.expected_wait(request);
  if (wait <= Nanoseconds{0}) return false;
  if (wait > gateway_.wait_max()) return true;
  HeldCall::Parked parked{{}, request.attributes.uid};
  std::ranges::copy(call.compound->slot->session_id, parked.session.begin());
  if (!gateway_.park(parked.session, parked.uid, call.kind)) return true;
  held.parked = parked;
  return false;
}

// The server gets only SEQUENCE; its reply is mended when it arrives.
void NfsSession::delay(const MessageView& message, const Call& call, HeldCall& held) {
  ++gateway_.counters().delayed;
  std::array<std::byte, kAnswerMax> buffer;
  to_server_.append(cut_call(buffer, message, call));
  port_.transfer();
  sent(held);
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
  to_server_.append(piece_);
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
  if (call.is_gss) --gss_parked_;
  unpark(call);
  send(call);
}

void NfsSession::unpark(HeldCall& call) {
  if (!call.parked) return;
  gateway_.unpark(call.parked->session, call.parked->uid);
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
  call_writer_.begin(to_server_, call.message, call.length);
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
  call.message = {};
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

// ---- from the server ----

void NfsSession::from_server(Input in) {
  while (!in.empty() && !is_closed_) {
    if (is_opaque_) {
      to_client_.append(in);
      replied_ += in.size();
      break;
    }
    const RecordEvent piece = from_server_.next(in);
    if (piece.kind == RecordEvent::Kind::kBreak) {
      port_.note(
          fmt::format("server {} sent {}; disconnected", server_.text, describe(piece.reason)));
      has_server_ended_ = true;
      return port_.hang_up();
    }
    if (piece.kind != RecordEvent::Kind::kPiece) break;
    if (!take_reply(piece)) break;
  }
  if (!is_closed_) account_replies();
}

// False: the connection is over.
bool NfsSession::take_reply(const RecordEvent& piece) {
  if (is_reply_begun_) {
    is_reply_begun_ = !piece.is_last;
    reply_writer_.add(to_client_, piece.bytes, piece.is_last);
    return true;
  }
  const auto bytes = reply_head_.add(piece, from_server_);
  if (!bytes) return true;
  is_reply_begun_ = !piece.is_last;
  begin_reply(*bytes, piece.is_last);
  if (is_closed_) return false;
  reply_head_.clear();
  return true;
}

void NfsSession::begin_reply(Bytes bytes, bool is_whole) {
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
  if (!is_known) return reply_writer_.begin(to_client_, bytes, length);
  const PendingCall& pending = found->second->pending;
  const Reply reply = read_reply(message, pending);
  std::array<std::byte, kAnswerMax> buffer;
  if (const auto mended = mend_reply(buffer, message, pending)) {
    to_client_.append(*mended);
  } else {
    reply_writer_.begin(to_client_, bytes, length);
  }
  learn(reply);
  const bool is_probe = found->second->is_tls_probe;
  settle(pending.xid, reply);
  if (is_probe && is_whole && begin_tls(message)) is_opaque_ = true;
}

// Whether the following bytes are TLS. A client that has not waited for this reply is disconnected:
// its next bytes would be read as something else than the server reads.
bool NfsSession::begin_tls(const MessageView& message) {
  if (!starts_tls(read_reply_header(message))) return false;
  if (!calls_.empty() || from_client_.is_inside()) {
    port_.note("disconnected: it has sent calls before TLS was established");
    has_server_ended_ = true;
    port_.hang_up();
    return false;
  }
  ++gateway_.counters().tls_passed;
  warn_once(Gateway::Mark::kTls, "uses TLS: only its address and its bytes are limited");
  return true;
}

void NfsSession::settle(std::uint32_t xid, const Reply& reply) {
  const auto found = calls_.find(xid);
  HeldCall& call = *found->second;
  const std::uint64_t id = std::exchange(call.request_id, 0);
  if (--call.copies == 0) {
    held_ -= call.size();
    calls_.erase(found);
  }
  give_back_room();
  if (id == 0) return;
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

// ---- memory and time ----

bool NfsSession::make_room(std::size_t more) {
  const std::size_t needed = held_ + call_head_.size() + to_server_.size() + more;
  const std::size_t charge = needed - std::min(needed, SessionPort::kHeldFree);
  if (charge > charged_) {
    if (!port_.hold(charge - charged_)) {
      if (!stalled_since_) stalled_since_ = port_.now();
      return false;
    }
    charged_ = charge;
  }
  if (stalled_since_) {
    const Nanoseconds stalled = port_.now() - *std::exchange(stalled_since_, std::nullopt);
    gateway_.counters().stalled_ns += static_cast<std::uint64_t>(stalled.count());
  }
  return true;
}

void NfsSession::give_back_room() {
  const std::size_t needed = held_ + call_head_.size() + to_server_.size();
  const std::size_t charge = needed - std::min(needed, SessionPort::kHeldFree);
  // A connection that waits for room tries again whenever memory is released.
  if (charge >= charged_ && !stalled_since_) return;
  port_.release(charged_ - std::min(charge, charged_));
  charged_ = std::min(charge, charged_);
}

void NfsSession::account_replies() {
  const std::size_t size = to_client_.size();
  const std::size_t charge = size - std::min(size, SessionPort::kHeldFree);
  if (charge < charged_replies_) {
    port_.release(charged_replies_ - charge);
    charged_replies_ = charge;
  }
  bool is_full = size >= kToClientMax;
  if (charge > charged_replies_) {
    if (port_.hold(charge - charged_replies_)) {
      charged_replies_ = charge;
    } else {
      is_full = true;  // until the client has read some
    }
  }
  is_full_ = is_full;
}

// A message or call is not complete: checks it every kWatchEvery.
void NfsSession::watch() {
  if (std::exchange(is_watched_, true)) return;
  port_.wake_at(port_.now() + kWatchEvery);
}

void NfsSession::wake() {
  is_watched_ = false;
  if (awaits_header_) {
    port_.note("disconnected: it has to send a PROXY header first (accept_proxy), and has not");
    return port_.hang_up();
  }
  if (has_server_ended_) return port_.hang_up();
  const Instant now = port_.now();
  if (from_client_.is_inside() && !stalled_since_ && now - last_input_ >= kStallMax) {
    port_.note("disconnected: it has stopped within a message");
    has_server_ended_ = true;
    return port_.hang_up();
  }
  std::vector<std::uint64_t> late;
  for (const auto& [xid, call] : calls_) {
    const bool is_late = call->state == HeldCall::State::kSent && now - call->sent_at >= kLate;
    if (is_late && call->request_id != 0) late.push_back(std::exchange(call->request_id, 0));
  }
  std::ranges::sort(late);  // in the order of arrival
  for (const std::uint64_t id : late) {
    ++gateway_.counters().slots_given_up;
    port_.answer(id, {.is_forwarded = true});
  }
  if (!is_closed_ && (!calls_.empty() || from_client_.is_inside())) watch();
}

void NfsSession::closed() {
  if (!std::exchange(is_closed_, true)) look_for_bypass();
  for (auto& [xid, call] : calls_) unpark(*call);
  calls_.clear();
  piece_.clear();
  ready_.clear();
  arriving_ = nullptr;
  rest_ = Rest::kNowhere;
  held_ = 0;
  port_.release(std::exchange(charged_, 0) + std::exchange(charged_replies_, 0));
}

std::vector<serve::ProtocolCount> counts_of(Gateway& gateway) {
  const Counters& counters = gateway.counters();
  const std::string& name = gateway.options().name;
  return {
      {"weir_nfs_calls_total", "Calls of clients.", name, counters.calls},
      {"weir_nfs_free_calls_total", "Calls that are neither charged nor queued.", name,
       counters.free},
      {"weir_nfs_exempt_calls_total", "Calls that are charged and not queued.", name,
       counters.exempt},
      {"weir_nfs_delayed_calls_total", "Calls answered with NFS4ERR_DELAY.", name,
       counters.delayed},
      {"weir_nfs_duplicates_dropped_total", "Retransmissions of a call that was waiting.", name,
       counters.duplicates_dropped},
      {"weir_nfs_duplicates_forwarded_total", "Retransmissions of a call that was forwarded.", name,
       counters.duplicates_forwarded},
      {"weir_nfs_callbacks_total", "Calls of the server to clients.", name, counters.callbacks},
      {"weir_nfs_recalls_total", "Delegations that the server asked for.", name, counters.recalls},
      {"weir_nfs_replies_unmatched_total", "Replies to no known call.", name,
       counters.replies_unmatched},
      {"weir_nfs_slots_given_up_total", "Calls that the server has not answered for 30 s.", name,
       counters.slots_given_up},
      {"weir_nfs_tls_refused_total", "Probes for TLS that were refused.", name,
       counters.tls_refused},
      {"weir_nfs_tls_connections_total", "Connections whose calls are not visible.", name,
       counters.tls_passed},
      {"weir_nfs_layouts_total", "pNFS layouts that the server granted.", name, counters.layouts},
      {"weir_nfs_referrals_total", "Replies that refer a client to another server.", name,
       counters.moved},
      {"weir_nfs_bypasses_total", "Clients that left after EXCHANGE_ID without a session.", name,
       counters.bypasses},
      {"weir_nfs_server_unreachable_total", "Connections that could not be forwarded.", name,
       counters.server_unreachable},
      {"weir_nfs_server_closed_total", "Connections that the server closed.", name,
       counters.server_closed},
      {"weir_nfs_proxy_headers_total", "Connections of clients behind a proxy.", name,
       counters.proxy_headers},
      {"weir_nfs_stalled_seconds_total", "Time in which clients were not read from to save memory.",
       name, counters.stalled_ns, true},
  };
}

}  // namespace

serve::ProtocolKind protocol(std::string name, Gateway& gateway) {
  return {.name = std::move(name),
          .help = "NFS, forwarded to another server",
          .begin = [&gateway](SessionPort& port) { return begin_session(port, gateway); },
          .is_gateway = true,
          .counts = [&gateway] { return counts_of(gateway); }};
}

serve::ProtocolKind relay(std::string name, Gateway& gateway, std::uint16_t port, RelayKind kind) {
  auto server = std::make_shared<serve::ServerAddress>(gateway.server());
  serve::set_port(server->address, port);
  server->text = fmt::format("{}, port {}", gateway.server().text, port);
  const bool sends_proxy = kind == RelayKind::kOfServer && gateway.options().sends_proxy;
  return {.name = std::move(name),
          .help = "a protocol beside NFS, forwarded to another server",
          .begin =
              [&gateway, server, sends_proxy](SessionPort& of) {
                return std::make_unique<NfsSession>(of, gateway, *server, sends_proxy);
              },
          .is_gateway = true};
}

std::unique_ptr<serve::Session> begin_session(SessionPort& port, Gateway& gateway) {
  return std::make_unique<NfsSession>(port, gateway, gateway.server(),
                                      gateway.options().sends_proxy);
}

}  // namespace weir::nfs
