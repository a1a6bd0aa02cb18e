// SPDX-License-Identifier: Apache-2.0
//
// The session of a gateway (session.h), whose parts are in several files:
//
//   session.cc            its beginning and end, memory and time
//   session_calls.cc      calls of the client, until they are forwarded
//   session_replies.cc    replies and callbacks of the server
//
// Only these include this header.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/record.h"
#include "weir/nfs/gateway.h"
#include "weir/nfs/record_writer.h"
#include "weir/nfs/session.h"
#include "weir/serve/send_directly.h"

namespace weir::nfs {

using serve::ByteQueue;
using serve::IoRequest;
using serve::SessionPort;

// A reply that may have to be mended is collected completely.
inline constexpr std::size_t kReplyWholeMax = std::size_t{4} << 10;
inline constexpr std::size_t kReplyHeadBytes = std::size_t{1} << 10;
inline constexpr Nanoseconds kWatchEvery = std::chrono::seconds{1};
// Room that a parked write leaves for calls behind it.
inline constexpr std::size_t kRoomForOthers = std::size_t{1} << 20;
// Calls that were answered, whose memory is used again; freed by watch() when none is unanswered.
inline constexpr std::size_t kSparesMax = 32;
inline constexpr std::size_t kMessageKept = 512;
// Unanswered MNT calls whose paths are kept, to learn exports: too few to be charged.
inline constexpr std::size_t kMountsMax = 8;

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
    kQueued,   // in the Target
    kReady,    // its turn has come, and another message is being forwarded
    kRefused,  // cut, and kept until its turn
    kSent,
  };

  PendingCall pending;
  State state = State::kQueued;
  bool is_gss = false;
  bool is_tls_probe = false;
  bool is_record = false;        // `message` begins with its mark
  std::uint32_t copies = 1;      // sent to the server
  std::uint64_t request_id = 0;  // while it holds a slot of the Target
  std::uint64_t digest = 0;
  Instant sent_at;
  std::optional<std::uint32_t> length;  // of the message, once it is known
  std::optional<ParkedCall> parked;
  // Or its first bytes; of a refused call, the record that is sent instead.
  std::vector<std::byte> message;
  std::unique_ptr<ByteQueue> rest;  // of a long one

  std::size_t size() const {
    return sizeof *this + message.capacity() + (rest == nullptr ? 0 : rest->size());
  }
  // For the next call.
  void clear() {
    state = State::kQueued;
    is_gss = is_tls_probe = is_record = false;
    copies = 1;
    request_id = 0;
    length.reset();
    parked.reset();
    rest.reset();
    clear_message();
  }
  // A small buffer is kept for the next call.
  void clear_message() {
    if (message.capacity() > kMessageKept) {
      message = {};
    } else {
      message.clear();
    }
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
  // The rest of a long message is read when what has arrived is sent: it is not copied then.
  bool takes_from_server() const override {
    return !is_full_ && (!is_reply_begun_ || to_client_.empty());
  }
  bool takes_from_client() const override { return !is_streaming_ || to_server_.empty(); }
  bool takes_large_pieces() const override {
    return to_client_.empty() && port_.has_room(serve::kLargePiece);
  }
  std::size_t streamed_from_client() const override {
    const std::size_t left = from_client_.fragment_left();
    const bool streams = rest_ == Rest::kToServer && is_begun_ && takes_from_client();
    return streams && port_.has_room(left) ? left : 0;
  }
  void server_ended(std::string_view reason) override;
  bool stop() override;
  bool is_settled() const override {
    return calls_.empty() && piece_.empty() && passed_.empty() && to_server_.empty() &&
           !from_server_.is_inside();
  }
  void wake() override;
  void closed() override;

 private:
  using Calls = absl::flat_hash_map<std::uint32_t, std::unique_ptr<HeldCall>>;  // by xid
  // The destination of the rest of a long message.
  enum class Rest : std::uint8_t { kToCall, kToServer, kNowhere };

  void identify() {
    if (const auto identity = port_.identify({})) client_ = *identity;
    client_.export_name = export_name(gateway_.options().name);
  }
  void connect();

  // Where a writer of records puts bytes: into a queue, but what can be sent at once is. To the
  // client: bytes of the receive buffer stay there as long as they follow each other, so that all
  // replies in it are sent or copied as one piece.
  struct ToClient {
    NfsSession& session;
    Input received;  // the receive buffer

    // Whether they lie in the receive buffer, behind its first `skip` bytes.
    bool is_received(Input bytes, std::size_t skip = 0) const {
      const std::less_equal<const std::byte*> before;
      return received.size() >= skip && before(received.data() + skip, bytes.data()) &&
             before(bytes.data() + bytes.size(), received.data() + received.size());
    }
    // Takes a record as it is, with its mark. False: it was received in another form.
    bool take(const std::array<std::byte, kRecordMarkBytes>& mark, Input bytes) {
      if (!is_received(bytes, mark.size())) return false;
      const Input record(bytes.data() - mark.size(), bytes.size() + mark.size());
      if (!std::ranges::equal(record.first(mark.size()), mark)) return false;
      append(record);
      return true;
    }
    void append(Input bytes) {
      Input& passed = session.passed_;
      if (!is_received(bytes)) {
        session.end_passing();
        session.to_client_.append(bytes);
      } else if (!passed.empty() && passed.data() + passed.size() == bytes.data()) {
        passed = {passed.data(), passed.size() + bytes.size()};
      } else {
        session.end_passing();
        passed = bytes;
      }
    }
  };
  struct ToServer {
    NfsSession& session;
    void append(Input bytes) {
      session.to_server_.append(bytes.subspan(session.port_.send_to_server(bytes)));
    }
  };

  // ---- from the client ----
  std::optional<Event> take(const RecordEvent& piece, IoRequest& request);
  std::optional<Event> begin(Bytes bytes, bool is_whole, IoRequest& request);
  void continue_message(const RecordEvent& piece);
  std::optional<Event> begin_call(const MessageView& message, IoRequest& request);
  std::optional<Event> repeat(HeldCall& first, const MessageView& message, std::uint64_t digest);
  void hold_message(HeldCall& held, Bytes bytes);
  void hold_record(HeldCall& held, Bytes record);
  void end_call(Calls::iterator call);
  HeldCall& hold(const MessageView& message, const Call& call, std::uint64_t digest);
  bool must_delay(const Call& call, const IoRequest& request, HeldCall& held);
  void delay(const MessageView& message, const Call& call, HeldCall& held);
  void refuse_due();
  void refuse_first();
  bool may_answer(const Call& call) const;
  void answer_later(const Call& call);
  void refuse_tls(const Call& call);
  Event next_opaque(Input& in, IoRequest& request);
  void perform_opaque(const IoRequest& request);
  void look_for_owner(const CompoundCall& compound);
  void warn_once(Gateway::Mark mark, std::string_view text);
  bool passes_at_once(const Call& call) const;
  void fill(const Call& call, IoRequest& request);
  std::optional<JobId> host_job();
  ExportName export_of(Bytes file_handle);
  void note_mount(const MessageView& message, const Call& call);
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
  bool take_reply(const RecordEvent& piece, Input received);
  void begin_reply(Bytes bytes, bool is_whole, Input received);
  void end_passing();
  void settle(Calls::iterator found, const Reply& reply);
  bool begin_tls(const MessageView& message);
  void learn(const Reply& reply);
  void learn_export(const MessageView& message, std::uint32_t xid);
  void look_for_recalls(const MessageView& message);
  void look_for_bypass();

  // ---- memory ----
  bool make_room(std::size_t more);
  void give_back_room();
  void account_replies();
  void watch();
  void set_alarm();
  void look_for_late_calls();
  void give_up_slot(HeldCall& call);

  SessionPort& port_;
  Gateway& gateway_;
  const serve::ServerAddress& server_;
  const bool sends_proxy_;
  Attributes client_;
  std::optional<JobId> job_;  // of the client's host, as of jobs_version_
  std::uint64_t jobs_version_ = 0;
  std::shared_ptr<const Exports> exports_;  // as of exports_version_
  std::uint64_t exports_version_ = 0;
  absl::flat_hash_map<std::uint32_t, std::string> mounts_;  // paths of unanswered MNT, by xid
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
  Calls calls_;
  std::vector<std::unique_ptr<HeldCall>> spares_;
  std::uint32_t gss_parked_ = 0;
  // A refused write: it is cut, and its payload is not kept.
  struct Refusal {
    std::uint32_t xid;
    SessionId session;
    std::uint64_t payload;
    Instant since;
  };
  std::deque<Refusal> refusals_;  // in the order of arrival
  Instant refuse_at_;             // when to look at them again

  SessionId slots_session_{};  // the last one of which highest_slot_ was told
  std::uint32_t highest_slot_ = 0;
  RecordReader from_server_;
  Head reply_head_{kReplyWholeMax, kReplyHeadBytes};
  RecordWriter reply_writer_;
  bool is_reply_begun_ = false;
  Input passed_;  // of the receive buffer, on its way to the client

  std::size_t held_ = 0;             // bytes of calls_
  std::size_t charged_ = 0;          // for calls
  std::size_t charged_replies_ = 0;  // for to_client_
  bool is_full_ = false;             // to_client_
  std::optional<Instant> stalled_since_;
  Instant last_input_;
  Instant watch_at_ = kNever;
  Instant heard_at_;                     // the last bytes of the server
  std::optional<Instant> silent_since_;  // it owes answers, and has sent nothing for kSilent
  bool is_silence_noted_ = false;
  std::uint32_t slots_held_ = 0;   // of the Target, by forwarded calls
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

}  // namespace weir::nfs
