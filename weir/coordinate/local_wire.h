// SPDX-License-Identifier: Apache-2.0
//
// The protocol of a server's local socket, by which schedulers outside of Weir take part in epochs.
// Integers are big-endian. Every message has a head of 8 bytes:
//
//   0  4  length of the rest      4  1  kind      5  1  version, 1      6  2  0
//
//   scheduler -> server   1 join    combine (1: a Combine)  timeout in ms (4)  name (the rest)
//                         2 ready   epoch (8)  data (the rest, up to 4096)
//                         3 leave
//   server -> scheduler   4 joined
//                         5 start   epoch, or a negative errno (8)  reduced data (the rest)
//                         6 error   errno (4)  text (the rest); the server closes the connection
//
// LocalReader is the only code that parses bytes of a scheduler. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"
#include "weir/coordinate/epoch_combine.h"

namespace weir {

struct LocalJoin {
  Combine combine = Combine::kSum;
  Nanoseconds timeout{0};
  std::string name;
  bool operator==(const LocalJoin&) const = default;
};
struct LocalReady {
  std::int64_t epoch = kFirstEpoch;
  EpochBytes data;
  bool operator==(const LocalReady&) const = default;
};
struct LocalLeave {
  bool operator==(const LocalLeave&) const = default;
};
using LocalMessage = std::variant<LocalJoin, LocalReady, LocalLeave>;

// Bytes of a scheduler, as they arrive.
class LocalReader {
 public:
  // An epoch and the data.
  static constexpr std::size_t kBodyMax = 8 + kLocalDataMax;

  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next message; none until it is complete. After an error nothing more is read.
  Result<std::optional<LocalMessage>> next();

 private:
  std::string bytes_;
};

std::string local_joined();
std::string local_start(std::int64_t epoch, EpochView reduced);
std::string local_error(int error, std::string_view text);

}  // namespace weir
