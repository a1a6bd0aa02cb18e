// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/session_check.h"

#include <fmt/format.h>

namespace weir::serve {
namespace {

bool changes(const IoRequest& request) {
  return request.command == StoreCommand::kWrite || request.command == StoreCommand::kDiscard ||
         request.command == StoreCommand::kZero;
}

bool has_data(const IoRequest& request) {
  return request.command == StoreCommand::kRead || request.command == StoreCommand::kWrite;
}

std::string range_of(const IoRequest& request) {
  return fmt::format("{} bytes at offset {}", request.length, request.offset);
}

}  // namespace

std::string request_fault(const IoRequest& request) {
  if (request.opened == nullptr || request.opened->facts == nullptr) {
    return "asked for an export that it had not opened";
  }
  if (request.is_own) {
    if (request.reply_room <= IoRequest::kReplyRoomMax) return {};
    return fmt::format("asked for a reply buffer of {} bytes", request.reply_room);
  }
  const ExportFacts& facts = *request.opened->facts;
  if (request.offset > facts.size || request.length > facts.size - request.offset) {
    return fmt::format("asked for {}, of an export of {} bytes", range_of(request), facts.size);
  }
  if (has_data(request) && (request.length == 0 || request.length > facts.blocks.maximum)) {
    return fmt::format("asked for {}, more than the maximum of {}", range_of(request),
                       facts.blocks.maximum);
  }
  // A discard need not be aligned: a store rounds it inwards.
  if (((request.offset | request.length) & (facts.blocks.minimum - 1)) != 0 &&
      request.command != StoreCommand::kDiscard) {
    return fmt::format("asked for {}, of an export with blocks of {}", range_of(request),
                       facts.blocks.minimum);
  }
  if (changes(request) && facts.is_read_only) {
    return fmt::format("asked to change {} of a read-only export", range_of(request));
  }
  return {};
}

std::string reply_fault(const IoRequest& request) {
  if (request.head_size > IoRequest::kHeadMax) {
    return fmt::format("made a reply header of {} bytes", request.head_size);
  }
  if (request.head_size == 0 && request.payload.empty()) return "made an empty reply";
  return {};
}

}  // namespace weir::serve
