// SPDX-License-Identifier: Apache-2.0
//
// The server side of the NBD handshake (fixed newstyle), as bytes in and events out. The owner
// holds the socket, passes in received bytes in pieces of any size, and sends what is appended to
// its buffer:
//
//   Handshake handshake({.tls = Tls::kOff});
//   handshake.greet(out);
//   while (...) {
//     Event event = handshake.next(in, out);        advances `in` past the bytes it has used
//     NeedBytes    all of `in` is used; call again with more
//     WantExport   look the name up:   accept(export, out) or refuse(error, text, out)
//     WantList     list(name, description, out) for each export, then end_list(out); or refuse
//     WantTls      start_tls(out), or refuse
//     Abort        send `out`, then close
//     Break        close; `out` need not be sent
//   }
//
// A Want must be answered before the next call of next(). The result of the answer is kGoOn (more
// options), kTransmission (session() is negotiated; the rest of `in` is for requests.h) or kClose.
// After start_tls() the rest of `in` arrived unprotected before TLS started: pass it to the TLS
// library, never to next().
//
// The options are NBD_OPT_EXPORT_NAME, GO, INFO, LIST, ABORT, STRUCTURED_REPLY, LIST_META_CONTEXT,
// SET_META_CONTEXT (base:allocation), STARTTLS and, if offered, EXTENDED_HEADERS; others are
// answered with NBD_REP_ERR_UNSUP. An invalid option is answered here and not reported to the
// owner.
//
// Memory is bounded: an option's bytes are kept up to kOptionBytesMax, and only those that have
// arrived; longer options are skipped and rejected. A handshake of more than kOptionsMax options or
// kHandshakeBytesMax bytes in them is broken off. The owner's timeout handles a client that sends
// nothing: there is no clock here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weir/nbd/codec/protocol.h"

namespace weir::nbd {

inline constexpr std::size_t kOptionBytesMax = 1U << 14;
inline constexpr std::uint32_t kOptionsMax = 256;
inline constexpr std::uint32_t kHandshakeBytesMax = 1U << 20;

// The modes of the protocol's section "Server-side requirements". The owner refuses exports that
// need TLS while the server does not, with kErrTlsReqd.
enum class Tls : std::uint8_t { kOff, kOffered, kRequired };

// What a server offers.
struct Offers {
  Tls tls = Tls::kOff;
  bool extended_headers = false;
};

// The purpose of a request for an export.
enum class Purpose : std::uint8_t {
  kGo,            // to use it
  kExportName,    // to use it, the old way: a refusal ends the connection
  kDescribe,      // to get information about it
  kListContexts,  // which metadata contexts it has
  kSetContexts,   // to choose among them
};

struct NeedBytes {
  bool operator==(const NeedBytes&) const = default;
};
struct WantExport {
  std::string_view name;  // valid until it is answered; at most kStringMax bytes, none of them 0
  Purpose purpose = Purpose::kGo;
  bool operator==(const WantExport&) const = default;
};
struct WantList {
  bool operator==(const WantList&) const = default;
};
struct WantTls {
  bool operator==(const WantTls&) const = default;
};
struct Abort {
  bool operator==(const Abort&) const = default;
};
struct Break {
  BreakReason reason = BreakReason::kNotAnOption;
  bool operator==(const Break&) const = default;
};

enum class Next : std::uint8_t { kGoOn, kTransmission, kClose };

class Handshake {
 public:
  using Input = std::span<const std::byte>;
  using Output = std::vector<std::byte>;
  using Event = std::variant<NeedBytes, WantExport, WantList, WantTls, Abort, Break>;

  explicit Handshake(const Offers& offers) : offers_(offers) {}

  // Call once, before anything else.
  void greet(Output& out) const;

  // REQUIRES: no Want is unanswered, and the handshake has not ended (Abort, Break,
  // kTransmission, kClose).
  Event next(Input& in, Output& out);

  // REQUIRES: WantExport is unanswered; the export is valid (protocol.h).
  Next accept(const Export& offer, Output& out);
  // REQUIRES: a Want is unanswered; the reply is an error. A text is truncated after
  // kTextMax bytes.
  Next refuse(OptionReply error, std::string_view text, Output& out);
  // REQUIRES: WantList is unanswered. Between calls the owner may wait until `out` was sent.
  void list(std::string_view name, std::string_view description, Output& out) const;
  Next end_list(Output& out);
  // REQUIRES: WantTls is unanswered. Discards everything negotiated so far, as the
  // protocol requires.
  Next start_tls(Output& out);

  // REQUIRES: the result of an answer was kTransmission.
  const Session& session() const;

 private:
  enum class State : std::uint8_t { kFlags, kHead, kBody, kSkip, kAnswer, kTransmission, kEnd };
  enum class Waiting : std::uint8_t { kExport, kList, kTls };

  // Collects bytes until part_ has `wanted_` bytes; false if `in` was not enough.
  bool gather(Input& in);
  void expect(State state, std::size_t bytes);
  Event read_flags();
  Event read_head(Output& out);
  Event read_option(Output& out);
  Event read_export_name();
  Event read_go(Output& out);
  Event read_contexts(Output& out);
  Event read_plain(Output& out);
  bool is_known(std::uint32_t option) const;
  bool has_chunks() const { return structured_ || extended_; }
  Event plain(OptionReply reply, std::string_view text, Output& out);
  Event want_export(std::string_view name, Purpose purpose);
  Event wait(Waiting waiting, Event event);
  Event end(Event event);

  Next go_on();
  Next enter(const Export& offer);
  Next send_export_name(const Export& offer, Output& out);
  Next send_details(const Export& offer, Output& out);
  Next send_contexts(const Export& offer, Output& out);
  std::uint16_t flags_of(const Export& offer) const;

  std::byte* reply(OptionReply type, std::size_t bytes, Output& out) const;
  void reply_text(OptionReply type, std::string_view text, Output& out) const;
  void reply_item(Item item, std::string_view text, Output& out) const;

  Offers offers_;
  State state_ = State::kFlags;
  Waiting waiting_ = Waiting::kExport;
  bool fixed_ = false;
  bool no_zeroes_ = false;
  bool encrypted_ = false;
  bool structured_ = false;
  bool extended_ = false;

  std::uint32_t options_ = 0;
  std::uint32_t budget_ = kHandshakeBytesMax;

  std::uint32_t option_ = 0;        // the option being read or answered
  std::size_t wanted_ = 4;          // bytes that complete the part, or bytes to skip
  std::vector<std::byte> part_;     // the part being read
  std::string_view asked_name_;     // of the WantExport, in part_
  Purpose purpose_ = Purpose::kGo;  // of the WantExport
  std::uint8_t items_ = 0;          // requested information items, as bits
  bool names_allocation_ = false;   // among its queries

  bool allocation_ = false;      // was negotiated
  std::string allocation_name_;  // for the export of this name
  Session session_;
};

}  // namespace weir::nbd
