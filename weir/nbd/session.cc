// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/session.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/nbd/codec/handshake.h"
#include "weir/schedule/request.h"

namespace weir::nbd {
namespace {

using serve::StoreCommand;

constexpr std::uint32_t kStatusBytes = 4096;
static_assert(kReplyHeadMax <= serve::IoRequest::kHeadMax);

struct CommandTraits {
  std::string_view opcode;
  StoreCommand at_store;
};
// In the order of Command.
constexpr std::array<CommandTraits, 8> kTraits = {{
    {"ost_read", StoreCommand::kRead},
    {"ost_write", StoreCommand::kWrite},
    {"ost_disconnect", StoreCommand::kRead},  // not a request
    {"ost_sync", StoreCommand::kFlush},
    {"ost_punch", StoreCommand::kDiscard},
    {"ost_ladvise", StoreCommand::kPrefetch},
    {"ost_fallocate", StoreCommand::kZero},
    {"ost_seek", StoreCommand::kRead},  // of block status, which is the session's own
}};

struct Operation {
  std::uint32_t opcode;
  OperationKind kind;
  StoreCommand at_store;
};
using Operations = std::array<Operation, kTraits.size()>;

const Operations& operations() {
  static const Operations all = [] {
    Operations made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      const std::uint32_t opcode = opcode_number(kTraits[i].opcode).value();
      made[i] = {opcode, operation_kind(opcode), kTraits[i].at_store};
    }
    return made;
  }();
  return all;
}

const Operation& operation_of(Command command) {
  const auto index = static_cast<std::size_t>(command);
  WEIR_ASSERT(index < kTraits.size(), index);
  return operations()[index];
}

Tls tls_of(serve::TlsOptions::Mode mode) {
  using Mode = serve::TlsOptions::Mode;
  return mode == Mode::kOff ? Tls::kOff : mode == Mode::kOn ? Tls::kOffered : Tls::kRequired;
}

Export offer_of(const serve::ExportFacts& facts) {
  constexpr std::pair<std::uint8_t, std::uint16_t> kFlags[] = {
      {serve::kCanFlush, kSendFlush},          {serve::kCanWriteDurably, kSendFua},
      {serve::kCanDiscard, kSendTrim},         {serve::kCanZero, kSendWriteZeroes},
      {serve::kCanZeroFast, kSendFastZero},    {serve::kCanPrefetch, kSendCache},
      {serve::kCanFlushForAll, kCanMultiConn},
  };
  Export offer;
  offer.size = facts.size;
  if (facts.is_read_only) offer.flags = kReadOnly;
  for (const auto& [feature, flag] : kFlags) {
    if ((facts.features & feature) != 0)
      offer.flags = static_cast<std::uint16_t>(offer.flags | flag);
  }
  offer.blocks = facts.blocks;
  offer.reports_allocation = true;
  offer.name = facts.name;
  offer.description = facts.description;
  return offer;
}

std::uint8_t store_flags(std::uint16_t flags) {
  unsigned all = 0;
  if ((flags & kFua) != 0) all |= serve::kDurable;
  if ((flags & kNoHole) != 0) all |= serve::kKeepAllocated;
  if ((flags & kFastZero) != 0) all |= serve::kOnlyIfFast;
  return static_cast<std::uint8_t>(all);
}

class NbdSession final : public serve::Session {
 public:
  NbdSession(serve::SessionPort& port, const Offers& offers)
      : port_(port), negotiation_(std::make_unique<Negotiation>(offers)) {}

  void greet(Output& out) override { negotiation_->handshake.greet(out); }
  Step negotiate(Input& in, Output& out) override;
  Event next(Input& in, serve::IoRequest& request) override;
  void reply(serve::IoRequest& request, const serve::IoResult& result) override;
  void perform(serve::IoRequest& request, std::span<std::byte> room) override;
  std::string_view problem() const override { return describe(reason_); }

 private:
  // State that only the negotiation needs.
  struct Negotiation {
    explicit Negotiation(const Offers& offers) : handshake(offers) {}
    Handshake handshake;
    bool is_listing = false;  // listing exports; further input waits
    std::size_t listed = 0;   // of them
  };

  Step answer(const WantExport& want, Output& out);
  Step go_on_listing(Output& out);
  Step broken(BreakReason reason);
  void begin(const Request& asked, serve::IoRequest& request);
  void refuse(serve::IoRequest& request, const Asked& asked, ErrorCode error,
              std::string_view text);

  serve::SessionPort& port_;
  const Operations& operations_ = operations();
  std::unique_ptr<Negotiation> negotiation_;  // until it is open
  std::optional<RequestReader> reader_;       // from then on
  serve::OpenedExport opened_;
  Attributes identity_;
  std::array<ClassHint, kTraits.size()> hints_;  // by command
  BreakReason reason_ = BreakReason::kNotARequest;
};

// ---- negotiation ----

NbdSession::Step NbdSession::negotiate(Input& in, Output& out) {
  if (negotiation_->is_listing) return go_on_listing(out);
  Handshake& handshake = negotiation_->handshake;
  const Handshake::Event event = handshake.next(in, out);
  if (std::holds_alternative<NeedBytes>(event)) return Step::kNeedBytes;
  if (const auto* want = std::get_if<WantExport>(&event)) return answer(*want, out);
  if (std::holds_alternative<WantList>(event)) {
    negotiation_->is_listing = true;
    negotiation_->listed = 0;
    return Step::kGoOn;
  }
  if (std::holds_alternative<WantTls>(event)) {
    handshake.start_tls(out);
    return Step::kStartTls;
  }
  if (const auto* end = std::get_if<Break>(&event)) return broken(end->reason);
  return Step::kEnd;  // NBD_OPT_ABORT: its answer is sent first
}

NbdSession::Step NbdSession::answer(const WantExport& want, Output& out) {
  Handshake& handshake = negotiation_->handshake;
  const auto refuse = [&](OptionReply error, std::string_view text) {
    return handshake.refuse(error, text, out) == Next::kClose ? broken(BreakReason::kExportName)
                                                              : Step::kGoOn;
  };
  const auto asked = serve::parse_asked_name(want.name);
  if (!asked) return refuse(OptionReply::kErrInvalid, asked.error().message());
  const serve::ExportFacts* const facts = port_.find_export(asked->name);
  if (facts == nullptr) {
    return refuse(OptionReply::kErrUnknown, fmt::format("no export named {}", quote(asked->name)));
  }
  const auto identity = port_.identify(asked->claims);
  if (!identity) return refuse(OptionReply::kErrPolicy, identity.error().message());
  if (handshake.accept(offer_of(*facts), out) != Next::kTransmission) return Step::kGoOn;
  port_.open(*facts, opened_);
  identity_ = *identity;
  identity_.export_name = export_name(facts->name);
  reader_.emplace(handshake.session());
  negotiation_.reset();
  return Step::kOpen;
}

NbdSession::Step NbdSession::go_on_listing(Output& out) {
  Handshake& handshake = negotiation_->handshake;
  if (negotiation_->listed < port_.export_count()) {
    const serve::ExportFacts& one = port_.export_at(negotiation_->listed++);
    handshake.list(one.name, one.description, out);
  } else {
    negotiation_->is_listing = false;
    handshake.end_list(out);
  }
  return Step::kGoOn;
}

NbdSession::Step NbdSession::broken(BreakReason reason) {
  reason_ = reason;
  return Step::kBreak;
}

// ---- transmission ----

NbdSession::Event NbdSession::next(Input& in, serve::IoRequest& request) {
  if (in.empty()) return Event::kNeedBytes;
  const RequestEvent event = reader_->next(in);
  using Kind = RequestEvent::Kind;
  switch (event.kind) {
    case Kind::kNeedBytes:
      return Event::kNeedBytes;
    case Kind::kRequest:
      begin(event.request, request);
      return Event::kRequest;
    case Kind::kRefused:
      refuse(request, {event.request.cookie, event.request.offset}, event.refusal.error,
             event.refusal.why);
      return Event::kRefused;
    case Kind::kDisconnect:
      return Event::kEnd;
    case Kind::kPayload:  // never fed: begin() leaves the payload to the server
    case Kind::kBreak:
      break;
  }
  reason_ = event.reason;
  return Event::kBreak;
}

void NbdSession::begin(const Request& asked, serve::IoRequest& request) {
  const auto index = static_cast<std::size_t>(asked.command);
  const Operation& operation = operations_[index];
  request.operation = operation.kind;
  request.bytes = bytes_of(asked);
  request.attributes = identity_;
  request.attributes.opcode = operation.opcode;
  request.hint = &hints_[index];
  request.opened = &opened_;
  request.tag = asked.cookie;
  request.offset = asked.offset;
  request.length = asked.length;
  request.command = operation.at_store;
  request.flags = store_flags(asked.flags);
  request.takes_hole = asked.command == Command::kRead && reader_->session().structured;
  if (asked.command == Command::kWrite) {
    reader_->payload_received(static_cast<std::uint32_t>(asked.length));
  }
  if (asked.command != Command::kBlockStatus) return;
  request.is_own = true;
  request.reply_room = kStatusBytes;
  request.flags = asked.has(kReqOne) ? 1 : 0;
}

void NbdSession::refuse(serve::IoRequest& request, const Asked& asked, ErrorCode error,
                        std::string_view text) {
  const ErrorReply made = error_reply(std::span(request.head).first<kReplyHeadMax>(),
                                      reader_->session(), asked, error, text);
  request.head_size = static_cast<std::uint32_t>(made.head.size());
  request.payload = std::as_bytes(std::span(made.text));
}

void NbdSession::reply(serve::IoRequest& request, const serve::IoResult& result) {
  if (result.error != 0) {
    const bool is_not_fast =
        result.error == EOPNOTSUPP && (request.flags & serve::kOnlyIfFast) != 0;
    const ErrorCode error =
        is_not_fast ? ErrorCode::kNotSup : error_code(static_cast<std::errc>(result.error));
    return refuse(request, {request.tag, request.offset}, error, result.text);
  }
  const auto head = std::span(request.head).first<kReplyHeadMax>();
  const nbd::Session& session = reader_->session();
  const Request asked = {.cookie = request.tag, .offset = request.offset, .length = request.length};
  const Encoded made = request.command != StoreCommand::kRead
                           ? done_reply(head, session, {asked.cookie, asked.offset})
                       : result.is_hole ? hole_reply(head, session, asked)
                                        : read_reply(head, session, asked);
  request.head_size = static_cast<std::uint32_t>(made.size());
}

// Block status.
void NbdSession::perform(serve::IoRequest& request, std::span<std::byte> room) {
  BlockStatusReply status(room, reader_->session(),
                          {.cookie = request.tag,
                           .offset = request.offset,
                           .length = request.length,
                           .command = Command::kBlockStatus,
                           .flags = request.flags != 0 ? kReqOne : std::uint16_t{0}});
  std::uint32_t extents = 0;
  port_.extents(opened_, request.offset, request.length, [&](std::uint64_t length, bool is_hole) {
    ++extents;
    return status.add(length, is_hole ? kStateHole | kStateZero : 0);
  });
  port_.answer(request.id, {.size = status.finish().size(), .effort = extents});
}

}  // namespace

serve::ProtocolKind protocol() {
  return {.name = "nbd", .help = "network block device", .begin = begin_session};
}

serve::ProtocolKind extended_protocol() {
  return {.name = "nbd64",
          .help = "network block device; offers extended headers too",
          .begin = begin_extended_session};
}

std::unique_ptr<serve::Session> begin_session(serve::SessionPort& port) {
  return std::make_unique<NbdSession>(port, Offers{.tls = tls_of(port.tls())});
}

std::unique_ptr<serve::Session> begin_extended_session(serve::SessionPort& port) {
  return std::make_unique<NbdSession>(port,
                                      Offers{.tls = tls_of(port.tls()), .extended_headers = true});
}

std::uint32_t opcode_of(Command command) { return operation_of(command).opcode; }

OperationKind kind_of(Command command) { return operation_of(command).kind; }

Bytes bytes_of(const Request& request) {
  switch (request.command) {
    case Command::kRead:
    case Command::kWrite:
    case Command::kCache:
      return Bytes{request.length};
    case Command::kWriteZeroes: {
      // A store first tries to punch a hole or to have the file system mark the range, and writes
      // zeroes if that fails, which is not known in advance. Only with FAST_ZERO and without
      // NO_HOLE it punches or refuses.
      const bool only_punches = request.has(kFastZero) && !request.has(kNoHole);
      return only_punches ? serve::kOperationBytes : Bytes{request.length};
    }
    default:
      return serve::kOperationBytes;
  }
}

}  // namespace weir::nbd
