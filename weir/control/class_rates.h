// SPDX-License-Identifier: Apache-2.0
//
// What each class did in the last second or two, and the main cause of its waits, added to a
// snapshot for lists of classes, the page and weir top.
//
//   rates.update(shot, history);     sets ClassSnapshot::recent and ::cause
//
// Two earlier snapshots are remembered as sums by name, at least kWindowMin apart, and the older of
// both is the base: so the window does not depend on how often readers ask. A base that is older
// than kWindowMax is not used: then the last second is that of the history, and of classes that it
// does not keep nothing is known yet. Memory is that of the names of all classes, and only while
// they are read.
//
// Requests that wait for less than kShortWait on average have no cause, unless some wait now.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "weir/account/usage_history.h"
#include "weir/base/time.h"
#include "weir/control/snapshot.h"

namespace weir::control {

class ClassRates {
 public:
  static constexpr Nanoseconds kWindowMin = std::chrono::seconds{1};
  static constexpr Nanoseconds kWindowMax = std::chrono::seconds{10};
  static constexpr std::uint64_t kShortWait = 1000;  // ns

  void update(Snapshot& shot, const UsageHistory& history);

 private:
  struct Sample {
    Instant at = kNever;  // kNever: none
    // By service, in the order of the snapshot.
    std::vector<std::unordered_map<std::string, UsageSums>> sums;
  };

  Sample older_;
  Sample newer_;
};

}  // namespace weir::control
