// SPDX-License-Identifier: Apache-2.0
//
// Whether exclusive locks exclude: reads what holders say of themselves, not what the server
// believes. A holder says when it begins to use a lock, with the fence it was given, and when it
// ends; the two clocks that could disagree about a lease are so both in the test.
//
//   two holders    of one lock at one time
//   old fence      somebody writes with a smaller fence than storage has seen: a storage that
//                  compares fences would refuse it, and rightly
//
// One object for a run; common locks are numbers from 0.
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
  // Of somebody who does not hold: nothing happens.
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
