// SPDX-License-Identifier: Apache-2.0
//
// The types of epochs. An epoch is a span of time that the schedulers of all servers go through
// together: each signals when it is ready for the next one and sends some data, and when all have,
// each is called back with the number of the new epoch and the data of all, reduced to one. A
// scheduler only sees an EpochHandler.
//
//   handler.next_epoch(kFirstEpoch, data, started, now);     joins; then with the current number
//     ... started(epoch, reduced)                            within the timeout and a short while
//   handler.last_epoch(epoch, now);                          leaves
//
// Numbers are signed 64 bits: 0 is "I do not know", negative ones are errno values, and valid ones
// grow for ever. The leader's term stands in their upper 32 bits, so that two leaders never give
// the same number:
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

// What a scheduler may hand in without asking anybody, and what our own reductions may.
inline constexpr std::size_t kEpochDataGuaranteed = 4096;
inline constexpr std::size_t kEpochDataMax = std::size_t{256} * 1024;
inline constexpr std::size_t kEpochMembersMax = 65'536;

using EpochBytes = std::vector<std::byte>;
using EpochView = std::span<const std::byte>;

// Combines a and b into out, which is as long as the longer of them. Associative and commutative.
using EpochCombine = std::function<void(std::span<std::byte> out, EpochView a, EpochView b)>;
// Turns opaque data of a peer with the other byte order round.
using EpochSwab = std::function<void(std::span<std::byte> data)>;
// The new epoch and the reduced data, as long as the shortest that was handed in; or a negative
// errno and nothing. The data is valid during the call. It may call next_epoch.
using EpochCallback = std::function<void(std::int64_t epoch, EpochView reduced, Instant now)>;

class EpochHandler {
 public:
  EpochHandler() = default;
  EpochHandler(const EpochHandler&) = delete;
  EpochHandler& operator=(const EpochHandler&) = delete;
  virtual ~EpochHandler() = default;

  // Ready for the epoch behind `current`, or for any with kFirstEpoch. The callback comes once, at
  // the earliest during the call. REQUIRES: no call is under way; data within kEpochDataMax.
  virtual void next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                          Instant now) = 0;
  // Leaves at once; a call under way is dropped without its callback.
  virtual void last_epoch(std::int64_t current, Instant now) = 0;
};

// One server alone: reduces its own data, which is to leave it as it is, and calls back at once.
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
