// SPDX-License-Identifier: Apache-2.0
//
// The outcome of a request, reported by its driver to the Gate. The cost of a request is not always
// known when it is admitted: a read may end at the end of the file, a reply may be longer than
// estimated. With the number of bytes that it actually moved, the difference is settled with the
// buckets that paid (Gate::complete). A request can also turn out to be the work of several
// operations, such as the listing of a large directory: limits in operations are charged for all of
// them. A value; a session creates one for each reply.
#pragma once

#include <cstdint>
#include <optional>

#include "weir/base/quantity.h"

namespace weir {

struct Outcome {
  enum class How : std::uint8_t {
    kDone,
    kFailed,      // the device refused it; it stays charged, unless `bytes` is set
    kNotStarted,  // it never reached the device: its tokens are given back
  };

  How how = How::kDone;
  std::optional<Bytes> bytes = std::nullopt;  // none: as many as it was charged
  std::uint32_t operations = 1;               // it was charged for one; never 0

  static Outcome done(Bytes bytes) { return {How::kDone, bytes, 1}; }
  static Outcome failed() { return {How::kFailed, std::nullopt, 1}; }
  static Outcome not_started() { return {How::kNotStarted, std::nullopt, 1}; }

  // Whether it differs from the charge of a request of this many bytes.
  bool differs_from(Bytes charged) const {
    return operations != 1 || bytes.value_or(charged) != charged;
  }

  bool operator==(const Outcome&) const = default;
};

}  // namespace weir
