// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rivals/gift.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace weir::sim {
namespace {

// Shares in draws are parts of this.
constexpr double kWhole = 1 << 30;
constexpr double kTiny = 1e-9;

}  // namespace

struct GiftCentre::Round {
  std::vector<std::vector<std::uint32_t>> targets_of;  // by job
  std::vector<double> fair;                            // with what was redeemed
  std::vector<double> least;
  std::vector<double> share;
  std::vector<double> room;  // by target

  double room_of(std::uint32_t job) const {
    double room_left = std::numeric_limits<double>::infinity();
    for (const std::uint32_t target : targets_of[job])
      room_left = std::min(room_left, room[target]);
    return room_left;
  }
  void give(std::uint32_t job, double more) {
    share[job] += more;
    for (const std::uint32_t target : targets_of[job]) room[target] -= more;
  }
};

std::vector<double> GiftCentre::decide(const std::vector<std::vector<std::uint32_t>>& active,
                                       const std::vector<std::uint64_t>& nodes) {
  accounts_.resize(nodes.size());
  Round round;
  round.targets_of.resize(nodes.size());
  round.fair.assign(nodes.size(), std::numeric_limits<double>::infinity());
  round.room.assign(active.size(), 1);
  round.share.assign(nodes.size(), 0);
  for (std::uint32_t target = 0; target < active.size(); ++target) {
    double all = 0;
    for (const std::uint32_t job : active[target]) all += static_cast<double>(nodes[job]);
    for (const std::uint32_t job : active[target]) {
      round.targets_of[job].push_back(target);
      round.fair[job] = std::min(round.fair[job], static_cast<double>(nodes[job]) / all);
    }
  }
  for (std::uint32_t job = 0; job < nodes.size(); ++job) {
    if (round.targets_of[job].empty()) {
      round.fair[job] = 0;
    } else {
      round.give(job, round.fair[job]);
    }
  }
  redeem(round);
  round.least = round.fair;
  throttle(round);
  raise(round);
  return round.share;
}

void GiftCentre::redeem(Round& round) {
  for (std::uint32_t job = 0; job < round.fair.size(); ++job) {
    const auto targets = static_cast<double>(round.targets_of[job].size());
    const double coupons = accounts_[job].issued - accounts_[job].redeemed;
    if (targets == 0 || coupons <= kTiny) continue;
    const double more = std::min(coupons / targets, round.room_of(job));
    if (more <= kTiny) continue;
    round.give(job, more);
    round.fair[job] += more;
    accounts_[job].redeemed += more * targets;
    redeemed_ += more * targets;
  }
}

// A job of several targets that lacks room on one of them gains on all of them if jobs that use
// only that one are throttled.
void GiftCentre::throttle(Round& round) {
  if (issued_ > 0 && redeemed_ / issued_ <= kRedeemed) return;
  const auto can_give = [&](std::uint32_t job) {
    const Account& account = accounts_[job];
    const double trust = account.redeemed - account.issued * kRedeemed;
    if (trust <= 0) return 0.0;
    return std::min(round.share[job] - round.fair[job] * (1 - kThrottle), trust);
  };
  for (std::uint32_t job = 0; job < round.share.size(); ++job) {
    if (round.targets_of[job].size() < 2) continue;
    double more = std::numeric_limits<double>::infinity();
    std::size_t tight = 0;
    for (const std::uint32_t target : round.targets_of[job]) {
      double spare = 0;
      for (std::uint32_t other = 0; other < round.share.size(); ++other) {
        const auto& its = round.targets_of[other];
        if (its.size() == 1 && its.front() == target) spare += can_give(other);
      }
      if (round.room[target] <= kTiny) ++tight;
      more = std::min(more, round.room[target] + spare);
    }
    if (more <= kTiny || tight == 0 || tight == round.targets_of[job].size()) continue;
    for (const std::uint32_t target : round.targets_of[job]) {
      for (std::uint32_t other = 0; other < round.share.size(); ++other) {
        const double missing = more - round.room[target];
        const auto& its = round.targets_of[other];
        if (missing <= kTiny || its.size() != 1 || its.front() != target) continue;
        const double taken = std::min(missing, can_give(other));
        if (taken <= kTiny) continue;
        round.give(other, -taken);
        accounts_[other].issued += taken;
        issued_ += taken;
      }
    }
    round.give(job, std::min(more, round.room_of(job)));
  }
}

// What is left over goes to jobs that can use it, in proportion to their shares.
void GiftCentre::raise(Round& round) {
  for (std::uint32_t target = 0; target < round.room.size(); ++target) {
    double all = 0;
    for (std::uint32_t job = 0; job < round.share.size(); ++job) {
      const auto& its = round.targets_of[job];
      if (its.size() == 1 && its.front() == target) all += round.share[job];
    }
    const double room = round.room[target];
    if (room <= kTiny || all <= 0) continue;
    for (std::uint32_t job = 0; job < round.share.size(); ++job) {
      const auto& its = round.targets_of[job];
      if (its.size() == 1 && its.front() == target) round.give(job, room * round.share[job] / all);
    }
  }
}

void GiftCentre::decide_all(const std::vector<std::uint64_t>& nodes) {
  std::vector<std::vector<std::uint32_t>> active;
  active.reserve(members_.size());
  for (const Gift* gift : members_) active.push_back(gift->active());
  const std::vector<double> shares = decide(active, nodes);
  for (Gift* gift : members_) gift->allocate(shares);
}

Gift::Gift(RivalSetup setup, std::shared_ptr<GiftCentre> centre)
    : Rival(std::move(setup)),
      centre_(std::move(centre)),
      shares_(this->setup().nodes.size()),
      draw_(shares_.size()),
      rest_(shares_.size()),
      rng_(this->setup().seed) {
  centre_->join(*this);
}

std::vector<Rival::Job> Gift::active() const {
  std::vector<Job> jobs;
  for (Job job = 0; job < shares_.size(); ++job) {
    if (!is_empty(job) || running_of(job) > 0) jobs.push_back(job);
  }
  return jobs;
}

void Gift::update(Job job) {
  draw_.set(job, is_empty(job) ? 0 : shares_[job]);
  rest_.set(job, is_empty(job) || shares_[job] > 0 ? 0 : setup().nodes[job]);
}

void Gift::allocate(const std::vector<double>& shares) {
  for (Job job = 0; job < shares_.size(); ++job) {
    shares_[job] = static_cast<std::uint64_t>(shares[job] * kWhole);
    update(job);
  }
}

void Gift::arrived(Job job, const Request& request, Instant /*now*/) {
  if (&first_of(job) == &request) update(job);
}

Rival::Choice Gift::choose(Instant now) {
  if (now >= decided_until_) {
    centre_->decide_all(setup().nodes);
    decided_until_ = now + kInterval;
  }
  WeightedDraw& from = draw_.total() > 0 ? draw_ : rest_;
  return {.job = static_cast<Job>(from.draw(rng_))};
}

void Gift::started(Job job, Request& /*request*/, Instant /*now*/) {
  if (is_empty(job)) update(job);
}

}  // namespace weir::sim
