// SPDX-License-Identifier: Apache-2.0
//
// The locks of one resource that wait to be held in another mode, first come, first served. Until
// then they are held in their old mode, so conversions can wait for each other:
//
//   lock 1 holds shared, wants exclusive: waits for lock 2
//   lock 2 holds shared, wants exclusive: waits for lock 1        a deadlock
//
// A conversion waits
//   - for each other lock whose mode conflicts with the wanted one,
//   - and for each conversion ahead, unless that waits for this lock itself: then letting this one
//     pass delays nobody.
// cycle_with() finds the cycle that a new conversion would close, so that it can be refused. Every
// cycle contains the conversion that came last, hence none remains undetected.
//
// Only locks of one resource are compared. A cycle through several resources is not detected: the
// program that holds one lock and waits for another may still release the first.
//
// Cost: linear in the number of conversions. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weir/lock/mode.h"

namespace weir::lock {

class Conversions {
 public:
  struct Conversion {
    std::uint32_t lock;  // the caller's number
    Mode held;
    Mode wanted;
  };

  bool empty() const { return line_.empty(); }
  const std::vector<Conversion>& line() const { return line_; }  // the first comes first

  void add(const Conversion& conversion) { line_.push_back(conversion); }
  // REQUIRES: it waits.
  Conversion remove(std::uint32_t lock);

  // The first conversion that need not wait for one ahead and that the holders allow; none:
  // line().size().
  std::size_t first_allowed(const ModeCounts& granted) const;
  // Whether a further conversion of a lock that is held in this mode must wait for one in line.
  bool is_ahead_of(Mode held) const;

  // Locks that would wait for each other in a circle, starting with the new one. Empty: none.
  std::vector<Conversion> cycle_with(const Conversion& added) const;

 private:
  std::vector<Conversion> line_;
};

}  // namespace weir::lock
