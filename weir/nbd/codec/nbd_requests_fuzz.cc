// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a client may crash the reader; accepted requests must be within the export, by an
// independent calculation; and bytes in pieces must give the same events as in one piece. The first
// byte selects the session, the second the size of the pieces and the headers; the rest is the
// client's bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/assert.h"
#include "weir/nbd/codec/requests.h"

namespace {

using namespace weir;
using namespace weir::nbd;

Session session_of(std::uint8_t choice, bool is_extended) {
  Session session = {.size = 1U << 20, .flags = kHasFlags};
  if ((choice & 1U) != 0) session.flags |= kReadOnly;
  if ((choice & 2U) != 0) session.flags |= kSendFlush | kSendFua;
  if ((choice & 4U) != 0) session.flags |= kSendTrim | kSendCache;
  if ((choice & 8U) != 0) session.flags |= kSendWriteZeroes | kSendFastZero;
  session.extended = is_extended;
  session.structured = is_extended || (choice & 16U) != 0;
  if (session.structured) session.flags |= kSendDf;
  session.allocation = session.structured && (choice & 32U) != 0;
  session.blocks = {(choice & 64U) != 0 ? 512U : 1U, 4096, 1U << 16};
  if ((choice & 128U) != 0) session.size = UINT64_MAX / 4096 * 4096;
  return session;
}

class Server {
 public:
  Server(std::uint8_t choice, bool is_extended) : reader_(session_of(choice, is_extended)) {}

  bool feed(std::span<const std::byte> in) {
    for (;;) {
      const RequestEvent event = reader_.next(in);
      if (event.kind == RequestEvent::Kind::kNeedBytes) {
        WEIR_ASSERT(in.empty());
        return true;
      }
      if (event.kind == RequestEvent::Kind::kPayload) {
        WEIR_ASSERT(reader_.payload_left() + event.payload.size() <= write_left_);
        write_left_ -= event.payload.size();
        add(event.payload);
        continue;
      }
      WEIR_ASSERT(write_left_ == 0);
      events_ += static_cast<char>('0' + static_cast<int>(event.kind));
      events_ += std::to_string(event.request.cookie);
      if (event.kind == RequestEvent::Kind::kRequest) serve(event.request);
      if (event.kind == RequestEvent::Kind::kRefused) refuse(event);
      if (event.kind == RequestEvent::Kind::kBreak ||
          event.kind == RequestEvent::Kind::kDisconnect) {
        return false;
      }
    }
  }

  const std::string& events() const { return events_; }

 private:
  void add(std::span<const std::byte> bytes) {
    events_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  void serve(const Request& request) {
    const Session& session = reader_.session();
    using Wide = unsigned __int128;
    WEIR_ASSERT(Wide{request.offset} + request.length <= session.size);
    const bool writes = request.command == Command::kWrite || request.command == Command::kTrim ||
                        request.command == Command::kWriteZeroes;
    WEIR_ASSERT(!writes || (session.flags & kReadOnly) == 0);
    WEIR_ASSERT(request.offset % session.blocks.minimum == 0 || request.command == Command::kTrim);
    WEIR_ASSERT((request.length > 0) == (request.command != Command::kFlush));
    std::array<std::byte, kReplyHeadMax> head;
    switch (request.command) {
      case Command::kRead:
        WEIR_ASSERT(request.length <= session.blocks.maximum);
        add(read_reply(head, session, request));
        if (session.structured) add(hole_reply(head, session, request));
        break;
      case Command::kWrite:
        WEIR_ASSERT(request.length <= session.blocks.maximum);
        WEIR_ASSERT(reader_.payload_left() == request.length);
        write_left_ = request.length;
        break;
      case Command::kBlockStatus:
        describe_extents(request);
        break;
      default:
        add(done_reply(head, session, {request.cookie, request.offset}));
        break;
    }
  }

  void describe_extents(const Request& request) {
    WEIR_ASSERT(reader_.session().allocation);
    const Session& session = reader_.session();
    const std::size_t head =
        session.extended ? BlockStatusReply::kExtendedHeadBytes : BlockStatusReply::kHeadBytes;
    const std::size_t one =
        session.extended ? BlockStatusReply::kExtendedExtentBytes : BlockStatusReply::kExtentBytes;
    std::vector<std::byte> buffer(head + 4 * one);
    BlockStatusReply reply(buffer, session, request);
    std::uint32_t extent = 512;
    while (reply.add(extent, extent / 1024 % 4)) extent += 512;
    const Encoded encoded = reply.finish();
    WEIR_ASSERT(encoded.size() <= buffer.size());
    WEIR_ASSERT(!request.has(kReqOne) || encoded.size() == head + one);
    add(encoded);
  }

  void refuse(const RequestEvent& event) {
    WEIR_ASSERT(event.refusal.error != ErrorCode::kNone && !event.refusal.why.empty());
    std::array<std::byte, kReplyHeadMax> head;
    const ErrorReply reply =
        error_reply(head, reader_.session(), {event.request.cookie, event.request.offset},
                    event.refusal.error, event.refusal.why);
    add(reply.head);
    add(std::as_bytes(std::span(reply.text)));
  }

  RequestReader reader_;
  std::size_t write_left_ = 0;
  std::string events_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  std::span<const std::byte> client = std::as_bytes(std::span(bytes + 2, size - 2));
  const bool is_extended = (bytes[1] & 128U) != 0;
  Server whole(bytes[0], is_extended);
  whole.feed(client);

  Server pieces(bytes[0], is_extended);
  const std::size_t piece = bytes[1] % 64 + std::size_t{1};
  while (!client.empty()) {
    const auto first = client.first(std::min(piece, client.size()));
    client = client.subspan(first.size());
    if (!pieces.feed(first)) break;
  }
  WEIR_ASSERT(pieces.events() == whole.events());
  return 0;
}
