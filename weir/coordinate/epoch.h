// SPDX-License-Identifier: Apache-2.0
//
// The types of epochs. An epoch is a period that the schedulers of all servers enter together: each
// signals when it is ready for the next one and sends some data, and when all have signalled, each
// is called back with the number of the new epoch and the data of all, reduced to one value. A
// scheduler only sees an EpochHandler.
//
//   handler.next_epoch(kFirstEpoch, data, started, now);     joins; later with the current number
//     ... started(epoch, reduced)                            within the timeout plus a grace time
//   handler.last_epoch(epoch, now);                          leaves
//
// Numbers are signed 64 bits: 0 means unknown, negative numbers are errno values, and valid ones
// always increase. The leader's term is in the upper 32 bits, so that two leaders never use the
// same number:
//
//   63         32 31          0
//   |   term     |   count    |       term 1 ... 2^31 - 1, of the leader; count 1 ... 2^32 - 1
//
// Handlers are EpochMember (many servers) and LocalEpochHandler (one). One owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weir/base/time.h"

namespace weir {

inline constexpr std::int64_t kFirstEpoch = 0;
inline constexpr std::uint32_t kTermMax = INT32_MAX;

constexpr std::int64_t epoch_number(std::uint32_t term, std::uint32_t count) {
  return static_cast<std::int64_t>(std::uint64_t{term} << 32 | count);
}
constexpr std::uint32_t term_of(std::int64_t epoch) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(epoch) >> 32);
}
constexpr std::uint32_t count_of(std::int64_t epoch) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(epoch));
}
constexpr bool is_epoch_error(std::int64_t epoch) { return epoch < 0; }

// The data that every scheduler may submit, and the maximum for Weir's own reductions.
inline constexpr std::size_t kEpochDataGuaranteed = 4096;
inline constexpr std::size_t kEpochDataMax = std::size_t{256} * 1024;
inline constexpr std::size_t kEpochMembersMax = 65'536;

using EpochBytes = std::vector<std::byte>;
using EpochView = std::span<const std::byte>;

// Combines a and b into out, which has the length of the longer one. Associative and commutative.
using EpochCombine = std::function<void(std::span<std::byte> out, EpochView a, EpochView b)>;
// Swaps the byte order of opaque data from a peer.
using EpochSwab = std::function<void(std::span<std::byte> data)>;
// The new epoch and the reduced data, as long as the shortest that was submitted; or a negative
// errno and no data. The data is valid during the call. The callback may call next_epoch.
using EpochCallback = std::function<void(std::int64_t epoch, EpochView reduced, Instant now)>;

class EpochHandler {
 public:
  EpochHandler() = default;
  EpochHandler(const EpochHandler&) = delete;
  EpochHandler& operator=(const EpochHandler&) = delete;
  virtual ~EpochHandler() = default;

  // Ready for the epoch after `current`, or for any epoch with kFirstEpoch. The callback is called
  // once, possibly during the call. REQUIRES: no call is in progress; data within kEpochDataMax.
  virtual void next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                          Instant now) = 0;
  // Leaves at once; a call in progress is dropped without its callback.
  virtual void last_epoch(std::int64_t current, Instant now) = 0;
};

// A single server: reduces its own data, which must leave it unchanged, and calls back at once.
class LocalEpochHandler final : public EpochHandler {
 public:
  void next_epoch(std::int64_t /*current*/, EpochBytes data, EpochCallback callback,
                  Instant now) override {
    callback(++epoch_, data, now);
  }
  void last_epoch(std::int64_t /*current*/, Instant /*now*/) override {}

 private:
  std::int64_t epoch_ = 0;
};

}  // namespace weir
