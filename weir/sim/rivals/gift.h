// SPDX-License-Identifier: Apache-2.0
//
// GIFT: throttle and reward. In every interval a centre divides the bandwidth of all targets among
// the jobs that have requests. A job gets the same share on all of its targets, as its processes
// wait for the slowest. A job may be throttled below its fair share if others can use more than it
// loses; it is given coupons for the difference and redeems them when targets have room.
//
// Source: Patel, Garg, Tiwari, "GIFT: A Coupon Based Throttle-and-Reward Mechanism for Fair and
// Efficient I/O Bandwidth Management on Parallel Storage Systems", FAST 2020, of which only the
// abstract was available; so the implementation that the authors of ThemisIO compare themselves
// with (github.com/bbThemis/ThemisIO, src/mds/schemes.cpp) was read for the rest:
//
//   fair share     the smallest of a job's shares on its targets
//   redemption     min(coupons, room on every one of its targets)
//   throttling     by at most kThrottle of the fair share, of jobs that redeemed at least
//                  kRedeemed of their coupons, while the system as a whole did
//
// Deviations: shares on a target are by nodes, where GIFT gives every job the same, so that all
// policies have the same goal. A search replaces the linear program: it throttles jobs of one
// target in favour of jobs of several, the only exchange that gains anything. The interval is 1 s
// (4 s in that implementation), which favours GIFT. Jobs that start within an interval get what is
// left over, and a slot never idles while a request waits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weir/sim/rival.h"
#include "weir/sim/rivals/weighted_draw.h"

namespace weir::sim {

class Gift;

// The decisions of all targets together.
class GiftCentre {
 public:
  static constexpr double kThrottle = 0.1;
  static constexpr double kRedeemed = 0.8;
  static constexpr double kFirstCoupons = 1;  // issued and redeemed at the start, as in the source

  struct Account {
    double issued = kFirstCoupons;
    double redeemed = kFirstCoupons;
  };

  // `active[t]` has the jobs with requests on target t. Returns the share of each job, equal on all
  // of its targets; 0 for others.
  std::vector<double> decide(const std::vector<std::vector<std::uint32_t>>& active,
                             const std::vector<std::uint64_t>& nodes);
  const Account& account(std::uint32_t job) const { return accounts_[job]; }

  void join(Gift& gift) { members_.push_back(&gift); }
  void decide_all(const std::vector<std::uint64_t>& nodes);

 private:
  struct Round;
  void redeem(Round& round);
  void raise(Round& round);
  void throttle(Round& round);

  std::vector<Account> accounts_;
  double issued_ = 0;
  double redeemed_ = 0;
  std::vector<Gift*> members_;
};

class Gift final : public Rival {
 public:
  static constexpr Nanoseconds kInterval = std::chrono::seconds{1};

  Gift(RivalSetup setup, std::shared_ptr<GiftCentre> centre);

 private:
  friend class GiftCentre;

  void arrived(Job job, const Request& request, Instant now) override;
  Choice choose(Instant now) override;
  void started(Job job, Request& request, Instant now) override;
  void update(Job job);
  std::vector<Job> active() const;
  void allocate(const std::vector<double>& shares);

  std::shared_ptr<GiftCentre> centre_;
  std::vector<std::uint64_t> shares_;
  WeightedDraw draw_;  // jobs with a share
  WeightedDraw rest_;  // jobs without one
  Rng rng_;
  Instant decided_until_{};
};

}  // namespace weir::sim
