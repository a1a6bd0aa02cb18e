// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/what_if.h"

#include <algorithm>

#include "weir/lustre/names.h"

namespace weir::lustre {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kEndlessly = std::uint64_t{1} << 40;
constexpr std::uint64_t kSecond = 1'000'000'000;

}  // namespace

WhatIf::WhatIf(const RuleController::Options& options, Work work)
    : controller_(options), work_(work) {}

void WhatIf::add(const RecordedRound& recorded) {
  for (const auto& [job, nodes] : recorded.sizes) set_nodes(job, nodes);
  const Nanoseconds elapsed = last_ ? recorded.round.at - *last_ : Nanoseconds{0};
  Instant before = last_.value_or(recorded.round.at);
  last_ = recorded.round.at;
  if (recorded.rules > 0) ruled_ += elapsed;
  for (const RuleGlance& seen : recorded.glances) {
    allow(seen.at - before);
    before = std::max(before, seen.at);
    apply(controller_.glance(seen), seen.at);
  }
  allow(recorded.round.at - before);
  RuleRound round = recorded.round;
  divide(round);
  round.rules = rules_;
  apply(controller_.decide(round), round.at);
  if (sums_.size() > kJobsMax) forget_jobs();
}

void WhatIf::forget_jobs() {
  const std::size_t before = sums_.size();
  std::erase_if(sums_, [&](const auto& each) {
    return controller_.demand_of(each.first) == nullptr && !held_.contains(each.first);
  });
  forgotten_ += before - sums_.size();
}

// What the rules in effect allow in this time.
void WhatIf::allow(Nanoseconds elapsed) {
  if (elapsed <= Nanoseconds{0}) return;
  for (auto& [job, held] : held_) {
    const Wide all =
        Wide{held.rate} * controller_.options().cpts * static_cast<std::uint64_t>(elapsed.count()) +
        held.part;
    held.allowed = std::min(held.allowed + static_cast<std::uint64_t>(all / kSecond), kEndlessly);
    held.part = static_cast<std::uint64_t>(all % kSecond);
  }
}

// No job gets more than its rule allows.
std::uint64_t WhatIf::wanted_by(const JobCount& job) const {
  const auto sums = sums_.find(job.job);
  const std::int64_t lead = sums == sums_.end() ? 0 : sums->second.lead;
  const std::uint64_t served = std::min(job.served.count(), kEndlessly);
  std::uint64_t wants = served;
  if (work_ == Work::kFixed) {
    const std::int64_t left = static_cast<std::int64_t>(served) - lead;
    wants = left < 0 ? 0 : std::min(static_cast<std::uint64_t>(left), kEndlessly);
  } else {
    const JobDemand* const demand = controller_.demand_of(job.job);
    const bool is_paper = controller_.options().mode == RuleController::Mode::kPaper;
    const bool is_backlogged =
        demand != nullptr && (is_paper || demand->state == JobDemand::State::kBacklogged);
    if (is_backlogged) wants = kEndlessly;
  }
  const auto held = held_.find(job.job);
  return held == held_.end() ? wants : std::min(wants, held->second.allowed);
}

void WhatIf::divide(RuleRound& round) {
  std::vector<Part> parts;
  std::uint64_t left = 0;
  for (std::size_t i = 0; i < round.jobs.size(); ++i) {
    const JobCount& job = round.jobs[i];
    const std::uint64_t recorded = std::min(job.served.count(), kEndlessly);
    Part part{.at = i, .recorded = recorded, .wants = wanted_by(job)};
    if (recorded == 0 && part.wants == 0) continue;
    part.got = std::min(recorded, part.wants);
    left += recorded - part.got;
    served_ += recorded;
    parts.push_back(part);
  }
  const std::uint64_t lost = hand_out(parts, left);
  lost_ += lost;
  if (round.served_all) {
    const std::uint64_t all = round.served_all->count();
    round.served_all = Tokens{all - std::min(all, lost)};
  }
  settle(round, parts);
}

// In equal parts, those that want the least first. Returns the rest, which no job wants.
std::uint64_t WhatIf::hand_out(std::vector<Part>& parts, std::uint64_t amount) {
  std::vector<Part*> unfilled;
  for (Part& part : parts) {
    if (part.wants > part.got) unfilled.push_back(&part);
  }
  std::sort(unfilled.begin(), unfilled.end(), [](const Part* a, const Part* b) {
    const std::uint64_t first = a->wants - a->got;
    const std::uint64_t second = b->wants - b->got;
    return first != second ? first < second : a->at < b->at;
  });
  for (std::size_t i = 0; i < unfilled.size() && amount > 0; ++i) {
    const std::uint64_t even = (amount + unfilled.size() - i - 1) / (unfilled.size() - i);
    const std::uint64_t more = std::min(even, unfilled[i]->wants - unfilled[i]->got);
    unfilled[i]->got += more;
    amount -= more;
  }
  return amount;
}

void WhatIf::settle(RuleRound& round, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    JobCount& job = round.jobs[part.at];
    Sums& sums = sums_[job.job];
    sums.served += part.recorded;
    (part.got < part.recorded ? sums.less : sums.more) +=
        std::max(part.got, part.recorded) - std::min(part.got, part.recorded);
    sums.lead += static_cast<std::int64_t>(part.got) - static_cast<std::int64_t>(part.recorded);
    job.served = Tokens{part.got};
    const auto held = held_.find(job.job);
    if (held != held_.end()) held->second.allowed -= std::min(held->second.allowed, part.got);
  }
  // A bucket holds no more than its depth.
  const std::uint64_t depth =
      std::uint64_t{controller_.options().depth} * controller_.options().cpts;
  for (auto& [job, held] : held_) held.allowed = std::min(held.allowed, depth);
}

void WhatIf::apply(const std::vector<JobRateChange>& changes, Instant now) {
  for (const JobRateChange& change : changes) {
    if (change.rate && !is_expressible(change.job)) continue;
    ++changes_;
    apply_to(rules_, change);
    holds_.change(change, now);
    if (change.rate) {
      Held& held = held_[change.job];
      held.rate = *change.rate;
      held.allowed = std::uint64_t{controller_.options().depth} * controller_.options().cpts;
      const auto [span, is_new] = open_.try_emplace(change.job, Span{change.job, now, now});
      span->second.lowest = is_new ? *change.rate : std::min(span->second.lowest, *change.rate);
      continue;
    }
    held_.erase(change.job);
    const auto span = open_.find(change.job);
    if (span == open_.end()) continue;
    span->second.to = now;
    ++spans_all_;
    if (spans_.size() < kListMax) spans_.push_back(span->second);
    open_.erase(span);
  }
}

void WhatIf::finish() {
  std::vector<JobRateChange> stops;
  stops.reserve(rules_.size());
  for (const RuleSeen& rule : rules_) stops.push_back({rule.job, std::nullopt, "the end"});
  if (last_) apply(stops, *last_);
}

std::vector<std::pair<JobId, WhatIf::Job>> WhatIf::jobs() const {
  std::vector<std::pair<JobId, Job>> all;
  for (const auto& [job, sums] : sums_) {
    Job each{.served = sums.served, .less = sums.less, .more = sums.more, .hold = {}};
    if (const Hold* const hold = holds_.find(job)) each.hold = *hold;
    all.emplace_back(job, each);
  }
  return all;
}

}  // namespace weir::lustre
