// SPDX-License-Identifier: Apache-2.0
//
// How a request ended, as its driver tells the Gate. What a request costs is not always known when
// it is admitted: a read may end at the end of the file, a reply may be longer than was guessed.
// With the bytes that it moved in the end, the difference is settled with the buckets that paid
// (Gate::complete). A value; a session makes one for each reply.
#pragma once

#include <cstdint>
#include <optional>

#include "weir/base/quantity.h"

namespace weir {

struct Outcome {
  enum class How : std::uint8_t {
    kDone,
    kFailed,      // the device refused it; it stays charged, unless `bytes` says otherwise
    kNotStarted,  // the device has never seen it: its tokens go back
  };

  How how = How::kDone;
  std::optional<Bytes> bytes = std::nullopt;  // none: as many as it was charged for

  static Outcome done(Bytes bytes) { return {How::kDone, bytes}; }
  static Outcome failed() { return {How::kFailed, std::nullopt}; }
  static Outcome not_started() { return {How::kNotStarted, std::nullopt}; }

  bool operator==(const Outcome&) const = default;
};

}  // namespace weir
