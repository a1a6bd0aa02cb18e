// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/requests.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir::nbd {
namespace {

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string to_string(Encoded bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::uint16_t code(Command command) { return static_cast<std::uint16_t>(command); }

constexpr std::uint64_t kSize = 1U << 30;
constexpr Session kAll = {.size = kSize,
                          .flags = kHasFlags | kSendFlush | kSendFua | kSendTrim |
                                   kSendWriteZeroes | kSendDf | kCanMultiConn | kSendCache |
                                   kSendFastZero,
                          .structured = true,
                          .allocation = true};
constexpr Session kBare = {.size = kSize, .flags = kHasFlags};
// Larger than compact headers can request at once.
constexpr std::uint64_t kLarge = std::uint64_t{1} << 40;
constexpr Session kWide = {
    .size = kLarge, .flags = kAll.flags, .structured = true, .extended = true, .allocation = true};

// The error code for a request in the session; kNone if it is accepted.
ErrorCode error_of(const RawRequest& raw, const Session& session = kAll) {
  const auto checked = check(raw, session);
  return checked ? ErrorCode::kNone : checked.error().error;
}

RawRequest raw(Command command, std::uint64_t offset = 0, std::uint32_t length = 4096,
               unsigned flags = 0) {
  return {.flags = static_cast<std::uint16_t>(flags),
          .command = code(command),
          .cookie = 7,
          .offset = offset,
          .length = length};
}

constexpr Command kWithRange[] = {Command::kRead,  Command::kWrite,       Command::kTrim,
                                  Command::kCache, Command::kWriteZeroes, Command::kBlockStatus};
constexpr ErrorCode kNone = ErrorCode::kNone;
constexpr ErrorCode kInval = ErrorCode::kInval;

// ---- valid and invalid requests ----

TEST(NbdCheck, AcceptsEveryCommandThatIsOffered) {
  for (const Command command : kWithRange) EXPECT_EQ(error_of(raw(command)), kNone);
  EXPECT_EQ(error_of(raw(Command::kFlush, 0, 0)), kNone);
  const auto checked = check(raw(Command::kWrite, 8192, 512, kFua), kAll);
  EXPECT_EQ(*checked, (Request{7, 8192, 512, Command::kWrite, kFua}));
}

TEST(NbdCheck, RefusesCommandsThatAreNotOffered) {
  EXPECT_EQ(error_of(raw(Command::kRead), kBare), kNone);
  EXPECT_EQ(error_of(raw(Command::kWrite), kBare), kNone);
  EXPECT_EQ(error_of(raw(Command::kFlush, 0, 0), kBare), kInval);
  for (const Command command :
       {Command::kTrim, Command::kCache, Command::kWriteZeroes, Command::kBlockStatus}) {
    EXPECT_EQ(error_of(raw(command), kBare), kInval);
  }
}

TEST(NbdCheck, RefusesCommandsThatDoNotExist) {
  for (const unsigned command : {8U, 9U, 255U, 256U, 65535U}) {
    RawRequest request = raw(Command::kRead);
    request.command = static_cast<std::uint16_t>(command);
    EXPECT_EQ(error_of(request), kInval);
  }
}

TEST(NbdCheck, EveryCommandHasItsFlagsAndNoOthers) {
  const std::pair<Command, unsigned> own[] = {
      {Command::kRead, kDf},
      {Command::kWrite, 0},
      {Command::kTrim, 0},
      {Command::kCache, 0},
      {Command::kWriteZeroes, kNoHole | kFastZero},
      {Command::kBlockStatus, kReqOne},
  };
  for (const auto& [command, flags] : own) {
    for (unsigned bit = 0; bit < 16; ++bit) {
      const bool allowed = ((flags | kFua) >> bit & 1U) != 0;
      EXPECT_EQ(error_of(raw(command, 0, 4096, 1U << bit)), allowed ? kNone : kInval)
          << "command " << code(command) << " bit " << bit;
    }
  }
}

TEST(NbdCheck, FlagsNeedTheirOffer) {
  Session session = kAll;
  session.flags = kAll.flags & ~kSendFua;
  EXPECT_EQ(error_of(raw(Command::kWrite, 0, 512, kFua), session), kInval);
  session.flags = kAll.flags & ~kSendDf;
  EXPECT_EQ(error_of(raw(Command::kRead, 0, 512, kDf), session), kInval);
  session.flags = kAll.flags & ~kSendFastZero;
  EXPECT_EQ(error_of(raw(Command::kWriteZeroes, 0, 512, kFastZero), session), kInval);
  EXPECT_EQ(error_of(raw(Command::kWriteZeroes, 0, 512, kNoHole), session), kNone);
}

TEST(NbdCheck, FuaOnWhatDoesNotWriteIsAcceptedAndForgotten) {
  for (const Command command : {Command::kRead, Command::kCache, Command::kBlockStatus}) {
    EXPECT_EQ(check(raw(command, 0, 512, kFua), kAll)->flags, 0);
  }
  EXPECT_EQ(check(raw(Command::kFlush, 0, 0, kFua), kAll)->flags, 0);
  EXPECT_EQ(check(raw(Command::kTrim, 0, 512, kFua), kAll)->flags, kFua);
}

TEST(NbdCheck, AReadOnlyExportIsNotWritten) {
  Session session = kAll;
  session.flags = kHasFlags | kReadOnly | kSendFlush;
  for (const Command command : {Command::kWrite, Command::kTrim, Command::kWriteZeroes}) {
    EXPECT_EQ(error_of(raw(command), session), ErrorCode::kPerm);
    EXPECT_EQ(error_of(raw(command, 0, 512, kFua), session), ErrorCode::kPerm);
  }
  EXPECT_EQ(error_of(raw(Command::kRead), session), kNone);
  EXPECT_EQ(error_of(raw(Command::kFlush, 0, 0), session), kNone);
}

TEST(NbdCheck, NothingReachesPastTheEnd) {
  const std::pair<std::uint64_t, std::uint32_t> past[] = {
      {kSize, 1},
      {kSize - 1, 2},
      {kSize - 4096, 4097},
      {kSize + 1, 1},
      {UINT64_MAX, 1},
      {UINT64_MAX - 4095, 4096},  // offset + length is 0
      {UINT64_MAX, UINT32_MAX},
  };
  for (const Command command : kWithRange) {
    const bool fills = command == Command::kWrite || command == Command::kWriteZeroes;
    for (const auto& [offset, length] : past) {
      EXPECT_EQ(error_of(raw(command, offset, length)), fills ? ErrorCode::kNoSpc : kInval)
          << code(command) << " at " << offset;
    }
    EXPECT_EQ(error_of(raw(command, kSize - 1, 1)), kNone);
  }
  Session huge = kAll;
  huge.size = UINT64_MAX - 511;
  EXPECT_EQ(error_of(raw(Command::kRead, huge.size - 512, 512), huge), kNone);
  EXPECT_EQ(error_of(raw(Command::kRead, huge.size - 512, 4096), huge), kInval) << "the sum wraps";
  Session empty = kAll;
  empty.size = 0;
  EXPECT_EQ(error_of(raw(Command::kRead, 0, 1), empty), kInval);
}

TEST(NbdCheck, RangesOfNoBytesAreRefused) {
  for (const Command command : kWithRange) EXPECT_EQ(error_of(raw(command, 0, 0)), kInval);
}

TEST(NbdCheck, AFlushHasNoRange) {
  EXPECT_EQ(error_of(raw(Command::kFlush, 0, 1)), kInval);
  EXPECT_EQ(error_of(raw(Command::kFlush, 1, 0)), kInval);
}

TEST(NbdCheck, RangesAreAlignedToTheMinimum) {
  Session session = kAll;
  session.blocks = {512, 4096, 1U << 25};
  for (const Command command : kWithRange) {
    EXPECT_EQ(error_of(raw(command, 512, 512), session), kNone);
    const ErrorCode unaligned = command == Command::kTrim ? kNone : kInval;
    EXPECT_EQ(error_of(raw(command, 511, 512), session), unaligned);
    EXPECT_EQ(error_of(raw(command, 512, 511), session), unaligned);
    EXPECT_EQ(error_of(raw(command, 256, 256), session), unaligned);
  }
}

TEST(NbdCheck, OnlyPayloadsAreHeldToTheMaximum) {
  Session session = kAll;
  session.blocks.maximum = 1U << 20;
  for (const Command command : kWithRange) {
    const bool has_payload = command == Command::kRead || command == Command::kWrite;
    EXPECT_EQ(error_of(raw(command, 0, 1U << 20), session), kNone);
    EXPECT_EQ(error_of(raw(command, 0, (1U << 20) + 1), session), has_payload ? kInval : kNone);
  }
}

// ---- reading ----

std::string request(Command command, std::uint64_t cookie, std::uint64_t offset,
                    std::uint32_t length, std::uint16_t flags = 0) {
  return number(kRequestMagic, 4) + number(flags, 2) + number(code(command), 2) +
         number(cookie, 8) + number(offset, 8) + number(length, 4);
}

// The cookie as the client's bytes: the reader does not interpret it as a number.
std::string cookie_bytes(std::uint64_t cookie) {
  return {reinterpret_cast<const char*>(&cookie), sizeof cookie};
}

// All events of a reader, with joined payload. The last entry is the end, if it is reached.
template <class Reader>
class Log {
 public:
  explicit Log(const Session& session) : reader_(session) {}

  // False when no more bytes may be fed.
  bool feed(std::string_view bytes) {
    std::span<const std::byte> in = std::as_bytes(std::span(bytes));
    for (;;) {
      const RequestEvent event = reader_.next(in);
      switch (event.kind) {
        case RequestEvent::Kind::kNeedBytes:
          EXPECT_TRUE(in.empty());
          return true;
        case RequestEvent::Kind::kRequest:
          lines.push_back(line(event.request));
          break;
        case RequestEvent::Kind::kPayload:
          EXPECT_FALSE(event.payload.empty());
          lines.back() += to_string(event.payload);
          break;
        case RequestEvent::Kind::kRefused:
          lines.push_back("refused " + cookie_bytes(event.request.cookie) + " " +
                          std::string(event.refusal.why));
          break;
        case RequestEvent::Kind::kDisconnect:
          lines.emplace_back("disconnect");
          return false;
        case RequestEvent::Kind::kBreak:
          lines.push_back("break: " + std::string(describe(event.reason)));
          return false;
      }
    }
  }

  std::vector<std::string> lines;

 private:
  static std::string line(const Request& request) {
    const char* names[] = {"read", "write", "", "flush", "trim", "cache", "zero", "status"};
    return names[code(request.command)] + std::string(" ") + cookie_bytes(request.cookie) + " " +
           std::to_string(request.offset) + "+" + std::to_string(request.length) + " " +
           std::to_string(request.flags) + ":";
  }

  Reader reader_;
};

using Lines = std::vector<std::string>;

Lines read(std::string_view bytes, const Session& session = kAll) {
  Log<RequestReader> log(session);
  log.feed(bytes);
  return log.lines;
}

constexpr std::uint64_t kCookie = 0x6162636465666768;  // abcdefgh

TEST(RequestReader, ReadsRequestsOneAfterTheOther) {
  EXPECT_EQ(read(request(Command::kRead, kCookie, 4096, 512) +
                 request(Command::kWrite, kCookie, 0, 5, kFua) + "hello" +
                 request(Command::kFlush, kCookie, 0, 0) +
                 request(Command::kWriteZeroes, kCookie, 1, 2, kNoHole | kFastZero) +
                 request(Command::kDisc, kCookie, 0, 0)),
            (Lines{"read abcdefgh 4096+512 0:", "write abcdefgh 0+5 1:hello",
                   "flush abcdefgh 0+0 0:", "zero abcdefgh 1+2 18:", "disconnect"}));
}

TEST(RequestReader, ADisconnectIsOneWhateverItsFieldsSay) {
  EXPECT_EQ(read(request(Command::kDisc, kCookie, 9, 9, 0xffff)), Lines{"disconnect"});
}

TEST(RequestReader, AWrongMagicNumberBreaksTheConnection) {
  const Lines broken = {"break: " + std::string(describe(BreakReason::kNotARequest))};
  EXPECT_EQ(read(std::string(kRequestBytes, 'x')), broken);
  std::string bytes = request(Command::kRead, kCookie, 0, 512);
  bytes[3] ^= 1;
  EXPECT_EQ(read(bytes), broken);
}

TEST(RequestReader, ARefusedWriteIsToldOfWhenItsPayloadHasPassed) {
  Log<RequestReader> log(kAll);
  log.feed(request(Command::kWrite, kCookie, kSize, 4) + "abc");
  EXPECT_EQ(log.lines, Lines{});
  log.feed("d" + request(Command::kRead, kCookie, 0, 1));
  EXPECT_EQ(log.lines,
            (Lines{"refused abcdefgh past the end of the export", "read abcdefgh 0+1 0:"}));
}

TEST(RequestReader, OnlyWritesHaveAPayload) {
  std::string unknown = request(Command::kRead, kCookie, 0, 100);
  unknown[7] = 99;
  EXPECT_EQ(
      read(unknown + request(Command::kTrim, kCookie, kSize, 100) +
           request(Command::kWrite, kCookie, 0, 0) + request(Command::kRead, kCookie, 0, 100)),
      (Lines{"refused abcdefgh unknown command", "refused abcdefgh past the end of the export",
             "refused abcdefgh an empty range", "read abcdefgh 0+100 0:"}));
}

TEST(RequestReader, AWriteOfMoreThanAnyServerTakesBreaksTheConnection) {
  const Lines broken = {"break: " + std::string(describe(BreakReason::kPayload))};
  EXPECT_EQ(read(request(Command::kWrite, kCookie, 0, kPayloadMax)), Lines{});
  EXPECT_EQ(read(request(Command::kWrite, kCookie, 0, kPayloadMax + 1)), broken);
  EXPECT_EQ(read(request(Command::kWrite, kCookie, 0, UINT32_MAX)), broken);
  EXPECT_EQ(read(request(Command::kTrim, kCookie, 0, UINT32_MAX)),
            Lines{"refused abcdefgh past the end of the export"});
}

TEST(RequestReader, TheOwnerMayReceivePayloadItself) {
  RequestReader reader(kAll);
  const std::string bytes = request(Command::kWrite, kCookie, 0, 10) + "abcd";
  std::span<const std::byte> in = std::as_bytes(std::span(bytes));
  EXPECT_EQ(reader.payload_left(), 0U);
  EXPECT_EQ(reader.next(in).kind, RequestEvent::Kind::kRequest);
  EXPECT_EQ(reader.payload_left(), 10U);
  EXPECT_EQ(to_string(reader.next(in).payload), "abcd");
  EXPECT_EQ(reader.payload_left(), 6U);
  reader.payload_received(0);
  reader.payload_received(5);
  EXPECT_EQ(reader.payload_left(), 1U);
  reader.payload_received(1);
  EXPECT_EQ(reader.payload_left(), 0U);
  const std::string more = request(Command::kFlush, kCookie, 0, 0);
  in = std::as_bytes(std::span(more));
  EXPECT_EQ(reader.next(in).request.command, Command::kFlush);
  EXPECT_DEATH(reader.payload_received(1), "assertion failed");
}

TEST(RequestReader, NoPayloadIsLeftToReceiveWhileOneIsPassedOver) {
  RequestReader reader(kAll);
  const std::string bytes = request(Command::kWrite, kCookie, kSize, 10);
  std::span<const std::byte> in = std::as_bytes(std::span(bytes));
  EXPECT_EQ(reader.next(in).kind, RequestEvent::Kind::kNeedBytes);
  EXPECT_EQ(reader.payload_left(), 0U);
}

// Recorded from qemu-img 7.2 map (the block status) and nbdinfo 1.14 (a read, and the end).
TEST(RequestReader, ReadsWhatRealClientsSend) {
  const std::string_view block_status(
      "\x25\x60\x95\x13\x00\x08\x00\x07\x00\x00\x56\x41\x4f\xb6\xe4\x70"
      "\x00\x00\x00\x00\x01\x31\x30\x00\x02\xce\xd0\x00",
      kRequestBytes);
  const std::string cookie("\x00\x00\x56\x41\x4f\xb6\xe4\x70", 8);
  EXPECT_EQ(read(block_status), Lines{"status " + cookie + " 20000768+47108096 8:"});
  const std::string_view nbdinfo(
      "\x25\x60\x95\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
      "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x20\x00"
      "\x25\x60\x95\x13\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02"
      "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
      2 * kRequestBytes);
  EXPECT_EQ(read(nbdinfo),
            (Lines{"read " + std::string("\0\0\0\0\0\0\0\x01", 8) + " 0+8192 0:", "disconnect"}));
}

// ---- extended headers ----

std::string wide_request(Command command, std::uint64_t offset, std::uint64_t length,
                         std::uint16_t flags = 0) {
  return number(kExtendedRequestMagic, 4) + number(flags, 2) + number(code(command), 2) +
         number(kCookie, 8) + number(offset, 8) + number(length, 8);
}

TEST(ExtendedRequests, LengthsHave64Bits) {
  const std::uint64_t most = std::uint64_t{5} << 32;
  EXPECT_EQ(
      read(wide_request(Command::kTrim, 0, most) +
               wide_request(Command::kWriteZeroes, 512, kLarge - 512) +
               wide_request(Command::kBlockStatus, 0, kLarge) +
               wide_request(Command::kCache, 0, kLarge + 1) +
               wide_request(Command::kTrim, UINT64_MAX, UINT64_MAX) +
               wide_request(Command::kDisc, 0, 0),
           kWide),
      (Lines{"trim abcdefgh 0+21474836480 0:", "zero abcdefgh 512+1099511627264 0:",
             "status abcdefgh 0+1099511627776 0:", "refused abcdefgh past the end of the export",
             "refused abcdefgh past the end of the export", "disconnect"}));
}

TEST(ExtendedRequests, ReadsAreHeldToTheMaximum) {
  EXPECT_EQ(
      read(wide_request(Command::kRead, 0, kWide.blocks.maximum) +
               wide_request(Command::kRead, 0, std::uint64_t{1} << 33),
           kWide),
      (Lines{"read abcdefgh 0+33554432 0:", "refused abcdefgh more than the maximum block size"}));
}

TEST(ExtendedRequests, AWriteNeedsTheFlagOfItsPayload) {
  EXPECT_EQ(read(wide_request(Command::kWrite, 0, 5, kPayloadLen | kFua) + "hello" +
                     wide_request(Command::kWrite, 0, 5) + wide_request(Command::kFlush, 0, 0),
                 kWide),
            (Lines{"write abcdefgh 0+5 1:hello",
                   "refused abcdefgh a write without the flag for its payload",
                   "flush abcdefgh 0+0 0:"}));
}

TEST(ExtendedRequests, PayloadThatNoCommandTakesIsSkipped) {
  EXPECT_EQ(read(wide_request(Command::kRead, 0, 5, kPayloadLen) + "hello" +
                     wide_request(static_cast<Command>(99), 0, 3, kPayloadLen) + "abc" +
                     wide_request(Command::kFlush, 0, 0),
                 kWide),
            (Lines{"refused abcdefgh a flag that is not valid for this command",
                   "refused abcdefgh unknown command", "flush abcdefgh 0+0 0:"}));
  EXPECT_EQ(
      read(wide_request(Command::kTrim, 0, std::uint64_t{kPayloadMax} + 1, kPayloadLen), kWide),
      Lines{"break: " + std::string(describe(BreakReason::kPayload))});
}

TEST(ExtendedRequests, EachKindOfHeaderIsOnlyForItsSession) {
  const Lines broken = {"break: " + std::string(describe(BreakReason::kNotARequest))};
  EXPECT_EQ(read(request(Command::kRead, kCookie, 0, 512) + "more", kWide), broken);
  EXPECT_EQ(read(wide_request(Command::kRead, 0, 512)), broken);
  EXPECT_EQ(read(request(Command::kWrite, kCookie, 0, 1, kPayloadLen) + "x"),
            Lines{"refused abcdefgh a flag that is not valid for this command"});
}

// ---- any split ----

// Mostly valid requests; cookies are arbitrary, so that payloads and headers contain the same
// bytes.
std::string some_request(std::uint32_t choice) {
  const std::uint64_t offset = choice % 7 == 0 ? kSize - 2 : choice;
  const std::uint32_t length = choice / 8 % 50;
  const auto command = static_cast<Command>(choice % 8);
  const auto flags = static_cast<std::uint16_t>(choice % 5 == 0 ? choice >> 8 & 31U : 0);
  if (command == Command::kDisc && choice % 64 > 8) {
    return request(Command::kWrite, kCookie, kSize, length) + std::string(length, '%');
  }
  if (command == Command::kWrite) {
    return request(command, kCookie, offset, length, flags) + std::string(length, 'p');
  }
  return request(command, kCookie, offset, length, flags);
}

template <class Reader>
Lines read_in_pieces(std::string_view bytes, const std::vector<std::uint8_t>& sizes,
                     const Session& session) {
  Log<Reader> log(session);
  for (std::size_t i = 0, place = 0; place < bytes.size(); ++i) {
    const std::size_t size = sizes.empty() ? 1 : sizes[i % sizes.size()] % 64 + 1;
    const std::string_view piece = bytes.substr(place, size);
    place += piece.size();
    if (!log.feed(piece)) break;
  }
  return log.lines;
}

template <class Reader>
bool splits_agree(std::string_view bytes, const std::vector<std::uint8_t>& sizes,
                  const Session& session = kAll) {
  Log<Reader> whole(session);
  whole.feed(bytes);
  return read_in_pieces<Reader>(bytes, sizes, session) == whole.lines &&
         read_in_pieces<Reader>(bytes, {}, session) == whole.lines;
}

std::string some_wide_request(std::uint32_t choice) {
  const auto command = static_cast<Command>(choice % 9 == 2 ? 4 : choice % 9);
  const std::uint32_t length = choice / 8 % 50;
  const bool has_payload = choice % 3 == 0 || command == Command::kWrite;
  const auto flags = static_cast<std::uint16_t>(has_payload ? kPayloadLen : 0);
  return wide_request(command, choice, length, flags) + std::string(has_payload ? length : 0, 'p');
}

RC_GTEST_PROP(RequestReaderProperty, AnySplitOfTheBytesGivesTheSameEvents,
              (const std::vector<std::uint32_t>& choices, const std::vector<std::uint8_t>& sizes)) {
  std::string bytes;
  for (const std::uint32_t choice : choices) bytes += some_request(choice);
  RC_ASSERT(splits_agree<RequestReader>(bytes, sizes));
}

RC_GTEST_PROP(RequestReaderProperty, AnySplitOfExtendedRequestsGivesTheSameEvents,
              (const std::vector<std::uint32_t>& choices, const std::vector<std::uint8_t>& sizes)) {
  std::string bytes;
  for (const std::uint32_t choice : choices) bytes += some_wide_request(choice);
  RC_ASSERT(splits_agree<RequestReader>(bytes, sizes, kWide));
}

// Mistake: an incomplete header is dropped.
struct DropsHalves : RequestReader {
  using RequestReader::RequestReader;
  RequestEvent next(Input& in) {
    if (payload_left() == 0 && in.size() < kRequestBytes) in = {};
    return RequestReader::next(in);
  }
};

// Mistake: the payload is expected together with its header.
struct ForgetsPayload : RequestReader {
  using RequestReader::RequestReader;
  RequestEvent next(Input& in) {
    const bool came_with_payload = !in.empty();
    const RequestEvent event = RequestReader::next(in);
    if (event.kind == RequestEvent::Kind::kRequest && in.empty() && came_with_payload) {
      payload_received(payload_left());
    }
    return event;
  }
};

TEST(RequestReaderProperty, TheCheckOfSplitsBites) {
  const std::string bytes = request(Command::kWrite, kCookie, 0, 40) + std::string(40, 'p') +
                            request(Command::kRead, kCookie, 0, 512) +
                            request(Command::kRead, kCookie, 0, 512);
  EXPECT_TRUE(splits_agree<RequestReader>(bytes, {27}));
  EXPECT_FALSE(splits_agree<DropsHalves>(bytes, {27}));
  EXPECT_FALSE(splits_agree<ForgetsPayload>(bytes, {27}));
}

// Accepted requests are within the export, whatever was requested.
template <class Check>
bool lies_within(const RawRequest& asked, const Session& session, Check accept) {
  const auto checked = accept(asked, session);
  if (!checked || checked->command == Command::kFlush) return true;
  using Wide = unsigned __int128;
  const std::uint32_t minimum = session.blocks.minimum;
  const bool is_aligned = checked->offset % minimum == 0 && checked->length % minimum == 0;
  return checked->length > 0 && (is_aligned || checked->command == Command::kTrim) &&
         Wide{checked->offset} + checked->length <= session.size;
}

RC_GTEST_PROP(NbdCheckProperty, WhatIsAcceptedLiesWithinTheExport,
              (std::uint16_t flags, std::uint64_t offset, std::uint32_t length,
               std::uint64_t size)) {
  for (std::uint16_t command = 0; command < 10; ++command) {
    for (const std::uint32_t minimum : {1U, 512U, 65536U}) {
      Session session = kAll;
      session.size = size / minimum * minimum;
      session.blocks = {minimum, 65536, 1U << 25};
      const auto some = static_cast<std::uint16_t>(flags & 31U);
      const std::uint64_t near_end = session.size - length + offset % 3;
      RC_ASSERT(lies_within({some, command, 0, offset, length}, session, check));
      RC_ASSERT(lies_within({some, command, 0, near_end, length}, session, check));
    }
  }
}

TEST(NbdCheckProperty, TheCheckOfRangesBites) {
  const auto adds = [](const RawRequest& asked, const Session& session) {
    return asked.offset + asked.length <= session.size
               ? tl::expected<Request, Refusal>(Request{0, asked.offset, asked.length, {}, 0})
               : tl::unexpected(Refusal{});
  };
  const RawRequest wraps = raw(Command::kRead, UINT64_MAX - 4095, 4096);
  EXPECT_TRUE(lies_within(wraps, kAll, check));
  EXPECT_FALSE(lies_within(wraps, kAll, adds));
}

// ---- replies ----

constexpr Asked kAsked = {kCookie, 4096};

class NbdReplies : public testing::Test {
 protected:
  std::array<std::byte, kReplyHeadMax> head{};

  std::string error(const Session& session, ErrorCode code, std::string_view text) {
    const ErrorReply reply = error_reply(head, session, kAsked, code, text);
    return to_string(reply.head) + std::string(reply.text);
  }
};

std::string simple(std::uint32_t error) {
  return number(kSimpleReplyMagic, 4) + number(error, 4) + cookie_bytes(kCookie);
}

std::string chunk(std::uint16_t flags, ReplyType type, const std::string& body,
                  std::size_t payload = 0) {
  return number(kStructuredReplyMagic, 4) + number(flags, 2) +
         number(static_cast<std::uint16_t>(type), 2) + cookie_bytes(kCookie) +
         number(body.size() + payload, 4) + body;
}

TEST_F(NbdReplies, SuccessIsASimpleReply) {
  EXPECT_EQ(to_string(done_reply(head, kAll, kAsked)), simple(0));
}

TEST_F(NbdReplies, AReadsHeadIsForThePayloadThatFollows) {
  const Request asked = {kCookie, 4096, 512, Command::kRead, 0};
  EXPECT_EQ(to_string(read_reply(head, kBare, asked)), simple(0));
  EXPECT_EQ(to_string(read_reply(head, kAll, asked)),
            chunk(kReplyDone, ReplyType::kOffsetData, number(4096, 8), 512));
}

TEST_F(NbdReplies, AReadMayBeInChunks) {
  EXPECT_EQ(to_string(data_chunk(head, kAll, kAsked, 0, 512, Chunk::kMore)),
            chunk(0, ReplyType::kOffsetData, number(0, 8), 512));
  EXPECT_EQ(to_string(hole_chunk(head, kAll, kAsked, 512, 1024, Chunk::kMore)),
            chunk(0, ReplyType::kOffsetHole, number(512, 8) + number(1024, 4)));
  EXPECT_EQ(to_string(hole_chunk(head, kAll, kAsked, 512, 1024, Chunk::kLast)),
            chunk(kReplyDone, ReplyType::kOffsetHole, number(512, 8) + number(1024, 4)));
  EXPECT_EQ(to_string(none_chunk(head, kAll, kAsked)), chunk(kReplyDone, ReplyType::kNone, ""));
}

TEST_F(NbdReplies, AReadOfZeroesIsAHole) {
  const Request asked = {kCookie, 4096, 512, Command::kRead, 0};
  EXPECT_EQ(to_string(hole_reply(head, kAll, asked)),
            chunk(kReplyDone, ReplyType::kOffsetHole, number(4096, 8) + number(512, 4)));
}

std::string wide_chunk(ReplyType type, const std::string& body, std::size_t payload = 0,
                       std::uint64_t offset = 4096) {
  return number(kExtendedReplyMagic, 4) + number(kReplyDone, 2) +
         number(static_cast<std::uint16_t>(type), 2) + cookie_bytes(kCookie) + number(offset, 8) +
         number(body.size() + payload, 8) + body;
}

TEST_F(NbdReplies, WithExtendedHeadersEveryReplyRepeatsTheOffset) {
  const Request asked = {kCookie, 4096, 512, Command::kRead, 0};
  EXPECT_EQ(to_string(done_reply(head, kWide, kAsked)), wide_chunk(ReplyType::kNone, ""));
  EXPECT_EQ(to_string(read_reply(head, kWide, asked)),
            wide_chunk(ReplyType::kOffsetData, number(4096, 8), 512));
  EXPECT_EQ(to_string(hole_reply(head, kWide, asked)),
            wide_chunk(ReplyType::kOffsetHole, number(4096, 8) + number(512, 4)));
  EXPECT_EQ(error(kWide, ErrorCode::kIo, "bad"),
            wide_chunk(ReplyType::kError, number(5, 4) + number(3, 2) + "bad"));
}

TEST_F(NbdReplies, ExtendedExtentsHaveLengthsOf64Bits) {
  std::vector<std::byte> buffer(BlockStatusReply::kExtendedHeadBytes +
                                2 * BlockStatusReply::kExtendedExtentBytes);
  BlockStatusReply status(buffer, kWide, {kCookie, 0, kLarge, Command::kBlockStatus, 0});
  EXPECT_TRUE(status.add(std::uint64_t{1} << 35, kStateHole));
  EXPECT_TRUE(status.add(std::uint64_t{1} << 35, kStateHole));
  EXPECT_TRUE(status.add(512, 0));
  EXPECT_FALSE(status.add(512, kStateHole)) << "no room";
  EXPECT_EQ(to_string(status.finish()),
            wide_chunk(ReplyType::kBlockStatusExt,
                       number(kAllocationContextId, 4) + number(2, 4) +
                           number(std::uint64_t{1} << 36, 8) + number(kStateHole, 8) +
                           number(512, 8) + number(0, 8),
                       0, 0));
}

TEST_F(NbdReplies, ErrorsCarryATextWhereTheyCan) {
  EXPECT_EQ(error(kBare, ErrorCode::kNoSpc, "lost"), simple(28));
  EXPECT_EQ(error(kAll, ErrorCode::kIo, "bad disk"),
            chunk(kReplyDone, ReplyType::kError, number(5, 4) + number(8, 2) + "bad disk"));
  EXPECT_EQ(error(kAll, ErrorCode::kIo, ""),
            chunk(kReplyDone, ReplyType::kError, number(5, 4) + number(0, 2)));
  EXPECT_EQ(error(kAll, ErrorCode::kIo, std::string(9999, 'x')),
            chunk(kReplyDone, ReplyType::kError,
                  number(5, 4) + number(kTextMax, 2) + std::string(kTextMax, 'x')));
}

class BlockStatus : public testing::Test {
 protected:
  // The reply to a request for this many bytes at 0, with room for this many extents.
  static std::string reply(std::uint32_t length, std::uint16_t flags, std::size_t extents_max,
                           const std::vector<std::pair<std::uint64_t, std::uint32_t>>& extents) {
    std::vector<std::byte> buffer(BlockStatusReply::kHeadBytes +
                                  extents_max * BlockStatusReply::kExtentBytes);
    BlockStatusReply status(buffer, kAll, {kCookie, 0, length, Command::kBlockStatus, flags});
    for (const auto& [extent, state] : extents) {
      if (!status.add(extent, state)) break;
    }
    return to_string(status.finish());
  }

  static std::string expected(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& extents) {
    std::string body = number(kAllocationContextId, 4);
    for (const auto& [extent, state] : extents) body += number(extent, 4) + number(state, 4);
    return chunk(kReplyDone, ReplyType::kBlockStatus, body);
  }
};

constexpr std::uint32_t kHole = kStateHole | kStateZero;

TEST_F(BlockStatus, TellsTheExtentsUpToTheEndOfTheRequest) {
  EXPECT_EQ(reply(10'000, 0, 8, {{4096, 0}, {4096, kHole}, {1U << 30, 0}}),
            expected({{4096, 0}, {4096, kHole}, {1808, 0}}));
}

TEST_F(BlockStatus, NeighboursOfTheSameStateAreOne) {
  EXPECT_EQ(reply(10'000, 0, 8, {{4096, kHole}, {4096, kHole}, {4096, 0}}),
            expected({{8192, kHole}, {1808, 0}}));
}

TEST_F(BlockStatus, StopsWhereTheBufferEnds) {
  EXPECT_EQ(reply(10'000, 0, 2, {{1, 0}, {2, kHole}, {3, 0}, {4, 0}}),
            expected({{1, 0}, {2, kHole}}));
  EXPECT_EQ(reply(10'000, 0, 1, {{1, 0}, {2, 0}, {3, kHole}}), expected({{3, 0}}));
}

TEST_F(BlockStatus, OneIsOneAndNoLongerThanTheRequest) {
  EXPECT_EQ(reply(10'000, kReqOne, 8, {{4096, 0}, {4096, 0}, {4096, kHole}}),
            expected({{8192, 0}}));
  EXPECT_EQ(reply(10'000, kReqOne, 8, {{UINT64_MAX, kHole}}), expected({{10'000, kHole}}));
  EXPECT_EQ(reply(UINT32_MAX, 0, 8, {{UINT64_MAX, 0}}), expected({{UINT32_MAX, 0}}));
}

}  // namespace
}  // namespace weir::nbd
