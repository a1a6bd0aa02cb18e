// SPDX-License-Identifier: Apache-2.0
//
// Checks that exclusive locks exclude each other, from the reports of holders, not from the state
// of the server. A holder reports when it starts to use a lock, with its fence, and when it stops;
// so both clocks that could disagree about a lease are part of the test.
//
//   two holders    of one lock at one time
//   old fence      a client writes with a smaller fence than storage has seen, which storage that
//                  compares fences would reject
//
// One object per run; common locks are numbers from 0.
#pragma once

#include <cstdint>
#include <vector>

#include "weir/base/time.h"
#include "weir/sim/checkers.h"

namespace weir::sim {

class HolderCheck {
 public:
  HolderCheck(std::uint32_t locks, Findings& findings) : locks_(locks), findings_(findings) {}

  void begin(std::uint32_t lock, std::uint32_t holder, std::uint64_t fence, Instant now);
  // Ignored for a client that does not hold the lock.
  void end(std::uint32_t lock, std::uint32_t holder);

 private:
  struct Lock {
    std::vector<std::uint32_t> holders;
    std::uint64_t fence = 0;
  };
  std::vector<Lock> locks_;
  Findings& findings_;
};

}  // namespace weir::sim
