// SPDX-License-Identifier: Apache-2.0
//
// Validates the requests of a Session before they are used. A protocol rejects invalid requests of
// its client; a request that it fails to reject is caught here and not in a store: the connection
// is closed and the log names the protocol and the fault.
//
//   if (find_fault(request) != RequestFault::kNone) ...log request_fault(request), close it...
//
// Every request passes through the inline functions; only faults are turned into text.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>

#include "weir/serve/io_request.h"

namespace weir::serve {

enum class RequestFault : std::uint8_t {
  kNone,
  kNotOpened,  // the export
  kReplyRoom,
  kOutside,  // of the export
  kLength,
  kAlignment,
  kReadOnly,
};

inline RequestFault find_fault(const IoRequest& request) {
  if (request.opened == nullptr || request.opened->facts == nullptr) [[unlikely]]
    return RequestFault::kNotOpened;
  if (request.is_own) {
    const bool fits = request.reply_room <= IoRequest::kReplyRoomMax;
    return fits ? RequestFault::kNone : RequestFault::kReplyRoom;
  }
  const ExportFacts& facts = *request.opened->facts;
  const StoreCommand command = request.command;
  if (request.offset > facts.size || request.length > facts.size - request.offset) [[unlikely]]
    return RequestFault::kOutside;
  const bool has_data = command == StoreCommand::kRead || command == StoreCommand::kWrite;
  if (has_data && (request.length == 0 || request.length > facts.blocks.maximum)) [[unlikely]]
    return RequestFault::kLength;
  // A discard need not be aligned: a store rounds it inwards.
  if (((request.offset | request.length) & (facts.blocks.minimum - 1)) != 0 &&
      command != StoreCommand::kDiscard) [[unlikely]] {
    return RequestFault::kAlignment;
  }
  const bool changes = command == StoreCommand::kWrite || command == StoreCommand::kDiscard ||
                       command == StoreCommand::kZero;
  return changes && facts.is_read_only ? RequestFault::kReadOnly : RequestFault::kNone;
}
// A reply consists of header and payload.
inline bool is_reply_valid(const IoRequest& request) {
  return request.head_size <= IoRequest::kHeadMax &&
         (request.head_size > 0 || !request.payload.empty());
}

// The same as text; empty if it is valid.
std::string request_fault(const IoRequest& request);
std::string reply_fault(const IoRequest& request);

}  // namespace weir::serve
