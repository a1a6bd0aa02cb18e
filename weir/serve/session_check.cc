// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/session_check.h"

#include <fmt/format.h>

namespace weir::serve {
namespace {

std::string range_of(const IoRequest& request) {
  return fmt::format("{} bytes at offset {}", request.length, request.offset);
}

}  // namespace

std::string request_fault(const IoRequest& request) {
  const RequestFault found = find_fault(request);
  if (found == RequestFault::kNone) return {};
  if (found == RequestFault::kNotOpened) return "asked for an export that it had not opened";
  if (found == RequestFault::kReplyRoom) {
    return fmt::format("asked for a reply buffer of {} bytes", request.reply_room);
  }
  const ExportFacts& facts = *request.opened->facts;
  const std::string range = range_of(request);
  switch (found) {
    case RequestFault::kOutside:
      return fmt::format("asked for {}, of an export of {} bytes", range, facts.size);
    case RequestFault::kLength:
      return fmt::format("asked for {}, more than the maximum of {}", range, facts.blocks.maximum);
    case RequestFault::kAlignment:
      return fmt::format("asked for {}, of an export with blocks of {}", range,
                         facts.blocks.minimum);
    default:
      return fmt::format("asked to change {} of a read-only export", range);
  }
}

std::string reply_fault(const IoRequest& request) {
  if (is_reply_valid(request)) return {};
  if (request.head_size == 0) return "made an empty reply";
  return fmt::format("made a reply header of {} bytes", request.head_size);
}

}  // namespace weir::serve
