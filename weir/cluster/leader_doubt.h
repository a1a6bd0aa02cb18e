// SPDX-License-Identifier: Apache-2.0
//
// When a leader should let another lead. A leader that etcd hears and no server does (the network
// between servers is cut, or lets nobody in) would keep its lease for ever, and all others would
// run at what a server may use that is cut off. So it yields when for two leases
//
//   it led, there were others in etcd, at least kOthersMin, and it heard none of them.
//
// Two leases, since a server that has died is in etcd for one and a little more. With one other
// nothing would be gained: whoever leads, the two do not hear each other. Who cannot be heard by
// anybody at all passes the lead on too, again and again; that harms nobody, since all are cut off.
//
// Time is given. No locks.
#pragma once

#include <algorithm>
#include <cstddef>

#include "weir/base/time.h"

namespace weir::cluster {

class LeaderDoubt {
 public:
  static constexpr std::size_t kOthersMin = 2;
  static constexpr int kLeases = 2;

  struct Seen {
    bool leads = false;
    std::size_t others = 0;  // that are in etcd
    Instant others_heard{};  // when one of them last was
  };

  // After every listing of etcd. True: it should yield.
  bool observe(const Seen& seen, Nanoseconds lease, Instant now) {
    if (!seen.leads || seen.others < kOthersMin) unheard_since_ = now;
    unheard_since_ = std::max(unheard_since_, seen.others_heard);
    return now - unheard_since_ >= lease * kLeases;
  }

 private:
  Instant unheard_since_{};
};

}  // namespace weir::cluster
