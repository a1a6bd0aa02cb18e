// SPDX-License-Identifier: Apache-2.0
//
// A request of a client, from the protocol that parsed it to its reply: one object, which never
// moves. A Session fills in the request, and later the reply; the scheduler sees it as its Request;
// the store gets its range.
//
//   session fills it --> admitted to the Target --> store, or the session itself --> reply is sent
//
// The values that a session fills in are checked (session_check.h) before they are used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "weir/account/op_stats.h"
#include "weir/base/block_sizes.h"
#include "weir/base/quantity.h"
#include "weir/classify/opcode.h"
#include "weir/schedule/request.h"
#include "weir/serve/store.h"
#include "weir/serve/store_errors.h"

namespace weir::serve {

struct ServedExport;

// The properties of an export that a protocol needs. The texts live as long as the server.
struct ExportFacts {
  std::string_view name;
  std::string_view description;
  std::uint64_t size = 0;
  std::uint8_t features = 0;  // kCanFlush and so on; without writing operations if it is read-only
  bool is_read_only = false;
  BlockSizes blocks = {};
};

// An export as used by one session, which owns this: SessionPort::open() fills it in.
struct OpenedExport {
  const ExportFacts* facts = nullptr;
  ServedExport* served = nullptr;
  SyncErrors::Mark sync_mark = 0;  // the last lost write that was reported to the client
  OpStats::Handle stats;           // of its job
};

// The cost in bytes of an operation without data: a flush, a discard, a query, and zeroes that only
// punch holes. For most of them the device writes a block of metadata, and no operation is free.
inline constexpr Bytes kOperationBytes{4096};

struct IoRequest : Request {
  static constexpr std::size_t kHeadMax = 64;

  // ---- the request ----
  // Of Request: operation, bytes (charged against limits and capacities in bytes), attributes with
  // the opcode that rules match, and hint.
  OpenedExport* opened = nullptr;
  std::uint64_t tag = 0;  // for the protocol, such as a value that the reply must repeat
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  StoreCommand command = StoreCommand::kRead;
  std::uint8_t flags = 0;        // kDurable and so on
  bool is_own = false;           // the session performs it, not the store; `command` is unused
  bool is_exempt = false;        // charged, but never queued: it runs at once and takes no slot
  bool takes_hole = false;       // a read: IoResult::is_hole may be set
  std::uint32_t reply_room = 0;  // if is_own: bytes for its reply, at most kReplyRoomMax

  static constexpr std::uint32_t kReplyRoomMax = std::uint32_t{1} << 20;

  // Set by the server: counts from 1 on each connection.
  std::uint64_t id = 0;

  // ---- the reply: a header, then payload ----
  std::uint32_t head_size = 0;
  std::array<std::byte, kHeadMax> head{};
  // Of an error: a string constant. Otherwise set by the server: data of the store, or the content
  // of the buffer.
  std::span<const std::byte> payload;

  // Resets it before a session fills it in.
  void clear() {
    operation = OperationKind::kOther;
    bytes = kOperationBytes;
    hint = nullptr;
    opened = nullptr;
    flags = 0;
    is_own = false;
    is_exempt = false;
    takes_hole = false;
    reply_room = 0;
    head_size = 0;
    payload = {};
  }
};

// Whether its success means that data is durable.
inline bool makes_durable(const IoRequest& request) {
  return !request.is_own &&
         (request.command == StoreCommand::kFlush || (request.flags & kDurable) != 0);
}

// "export 'a': write of 4096 bytes at offset 8192: Input/output error (EIO)"
std::string describe_store_error(std::string_view export_name, const IoRequest& request, int error);

}  // namespace weir::serve
