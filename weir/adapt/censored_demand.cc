// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/censored_demand.h"

#include <algorithm>

namespace weir {
namespace {

using Wide = unsigned __int128;

// Jobs that were idle for so long are forgotten.
constexpr Nanoseconds kForgetAfter = std::chrono::minutes{10};
// Of the requests that no counters account for, so few are chance: rounds of the two files are not
// one moment.
constexpr std::uint64_t kStrayPercent = 10;

std::uint64_t scaled(std::uint64_t count, Nanoseconds to, Nanoseconds from) {
  if (from.count() <= 0) return count;
  return static_cast<std::uint64_t>(Wide{count} * static_cast<std::uint64_t>(to.count()) /
                                    static_cast<std::uint64_t>(from.count()));
}

}  // namespace

void CensoredDemand::begin(Nanoseconds elapsed, std::optional<Tokens> served_all) {
  elapsed_ = elapsed;
  served_all_ = served_all;
  counted_ = 0;
  for (auto& [id, job] : jobs_) job.seen = false;
}

void CensoredDemand::count(const Count& count) {
  Job& job = jobs_[count.job];
  job.seen = true;
  job.away = Nanoseconds{0};
  job.demand.job = count.job;
  job.demand.known = true;
  job.demand.served = count.served;
  job.allowed = count.allowed;
  job.own = count.own;
  counted_ += count.served.count();
}

void CensoredDemand::vanish(const JobId& id, std::optional<Tokens> allowed, Tokens own) {
  Job& job = jobs_[id];
  job.seen = true;
  job.away += elapsed_;
  job.demand.job = id;
  job.demand.known = false;
  job.demand.served = Tokens{0};
  job.allowed = allowed;
  job.own = own;
}

std::vector<JobId> CensoredDemand::jobs() const {
  std::vector<JobId> all;
  all.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) all.push_back(id);
  return all;
}

// Requests that the server served and no counters show belong to those that have vanished.
void CensoredDemand::attribute() {
  std::uint64_t usual = 0;
  for (const auto& [id, job] : jobs_) {
    if (!job.demand.known && job.seen && job.demand.state != JobDemand::State::kIdle) {
      usual += std::max<std::uint64_t>(job.usual, 1);
    }
  }
  if (usual == 0) return;
  std::uint64_t missing = 0;
  if (served_all_ && served_all_->count() > counted_) {
    missing = served_all_->count() - counted_;
    if (missing * 100 < served_all_->count() * kStrayPercent) missing = 0;
  }
  for (auto& [id, job] : jobs_) {
    if (job.demand.known || !job.seen || job.demand.state == JobDemand::State::kIdle) continue;
    const std::uint64_t part = std::max<std::uint64_t>(job.usual, 1);
    if (served_all_) {
      job.demand.served = Tokens{static_cast<std::uint64_t>(Wide{missing} * part / usual)};
    } else if (job.away <= kUnknownFor) {
      job.demand.served = Tokens{scaled(job.usual, elapsed_, std::chrono::seconds{1})};
    }
  }
}

// What was served in those rounds of the window in which a rule held it; and what that allowed.
std::uint64_t CensoredDemand::sum_of(const Job& job, std::uint64_t& allowed) {
  std::uint64_t served = 0;
  allowed = 0;
  for (const Round& round : job.rounds) {
    if (!round.allowed) continue;
    served += round.served;
    allowed += *round.allowed;
  }
  return served;
}

void CensoredDemand::judge(Job& job) {
  const std::uint64_t now = job.demand.served.count();
  const bool was_idle = job.demand.state == JobDemand::State::kIdle;
  job.quiet = now > 0 ? Nanoseconds{0} : job.quiet + elapsed_;
  job.rounds.push_back({elapsed_, now, job.allowed ? std::optional(job.allowed->count())
                                                   : std::nullopt});
  Nanoseconds time{0};
  for (const Round& round : job.rounds) time += round.time;
  while (job.rounds.size() > 1 && time - job.rounds.front().time >= kWindow) {
    time -= job.rounds.front().time;
    job.rounds.erase(job.rounds.begin());
  }
  if (job.demand.known) {
    std::uint64_t served = 0;
    for (const Round& round : job.rounds) served += round.served;
    job.usual = scaled(served, std::chrono::seconds{1}, time);
  }
  if (was_idle ? now == 0 : job.quiet >= kIdleAfter) {
    job.demand.state = JobDemand::State::kIdle;
    job.demand.since = Nanoseconds{0};
    job.demand.wanted = Tokens{0};
    return;
  }
  job.demand.since = was_idle ? elapsed_ : job.demand.since + elapsed_;
  bool hungry = false;
  if (job.allowed) {
    std::uint64_t allowed = 0;
    const std::uint64_t served = sum_of(job, allowed);
    // One request more or less is how the window was cut.
    hungry = (served + 1) * 100 >= allowed * kHungryPercent;
  } else {
    const std::uint64_t percent =
        job.demand.since <= kReturning ? kReturningPercent : kHungryPercent;
    hungry = now * 100 >= job.own.count() * percent && now > 1;
  }
  job.demand.state = hungry ? JobDemand::State::kHungry : JobDemand::State::kActive;
  job.demand.wanted = Tokens{now + now / 4 + 1};
}

const std::vector<JobDemand>& CensoredDemand::end() {
  // Neither counted nor said to have vanished: it is gone.
  for (auto& [id, job] : jobs_) {
    if (job.seen) continue;
    job.demand.known = true;
    job.demand.served = Tokens{0};
    job.allowed.reset();
  }
  attribute();
  result_.clear();
  result_.reserve(jobs_.size());
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    judge(job->second);
    if (job->second.quiet > kForgetAfter) {
      job = jobs_.erase(job);
      continue;
    }
    result_.push_back(job->second.demand);
    ++job;
  }
  return result_;
}

}  // namespace weir
