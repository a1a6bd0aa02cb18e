// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/censored_demand.h"

#include <algorithm>

namespace weir {
namespace {

using Wide = unsigned __int128;

// Jobs are removed after this idle time.
constexpr Nanoseconds kForgetAfter = std::chrono::minutes{10};
// A job with a low rate is idle after this time at the latest.
constexpr Nanoseconds kIdleMax = std::chrono::seconds{4};
// Up to this percentage of unattributed requests is chance, because the two files are not read at
// the same moment.
constexpr std::uint64_t kUnattributedPercent = 10;
constexpr std::uint64_t kStrangePercent = 25;

// What the depth of a bucket and requests in service may add to the amount of a rule in one round.
constexpr std::uint64_t kFewTokens = 4;

// Upper bound, whatever is counted in a nanosecond, so that sums over all jobs fit.
constexpr std::uint64_t kScaledMax = std::uint64_t{1} << 48;

std::uint64_t scaled(std::uint64_t count, Nanoseconds to, Nanoseconds from) {
  if (from.count() <= 0) return count;
  const Wide all = Wide{count} * static_cast<std::uint64_t>(to.count()) /
                   static_cast<std::uint64_t>(from.count());
  return static_cast<std::uint64_t>(std::min<Wide>(all, kScaledMax));
}

}  // namespace

void CensoredDemand::begin(Nanoseconds elapsed, std::optional<Tokens> served_all,
                           Nanoseconds service_time) {
  elapsed_ = elapsed;
  service_time_ = std::min(service_time, kSpacingMax);
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
  job.allowed = allowed_by(count.rate);
  job.own = count.own;
  counted_ += count.served.count();
}

std::optional<std::uint64_t> CensoredDemand::allowed_by(std::optional<Rate> rate) const {
  if (!rate) return std::nullopt;
  return std::min(tokens_in(*rate, elapsed_ * kParts).count(), kScaledMax);
}

void CensoredDemand::vanish(const JobId& id, std::optional<Rate> rate, Tokens own) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  job.seen = true;
  job.away += elapsed_;
  job.demand.known = false;
  job.demand.served = Tokens{0};
  job.allowed = allowed_by(rate);
  job.own = own;
}

std::vector<JobId> CensoredDemand::jobs() const {
  std::vector<JobId> all;
  all.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) all.push_back(id);
  return all;
}

// Requests that were served and that no counters show belong to jobs whose counters vanished: first
// to the active ones, by their earlier counts, and to a job with a rule at most what the rule
// allows; the rest to one that was idle when its counters vanished.
void CensoredDemand::attribute() {
  if (!served_all_) return attribute_by_time();
  std::uint64_t missing = served_all_->count() > counted_ ? served_all_->count() - counted_ : 0;
  const auto is_negligible = [&] {
    return missing * 100 < served_all_->count() * kUnattributedPercent;
  };
  std::vector<Job*> active;
  std::vector<Job*> idle;
  for (auto& [id, job] : jobs_) {
    if (job.demand.known || !job.seen) continue;
    (job.demand.state == JobDemand::State::kIdle ? idle : active).push_back(&job);
  }
  if (is_negligible()) {
    unattributed_for_ = Nanoseconds{0};
    return;
  }
  const bool is_nobodys = missing * 100 >= served_all_->count() * kStrangePercent;
  if (active.empty() && idle.empty() && is_nobodys) unattributed_for_ += elapsed_;
  attribute_to_active(active, missing);
  if (is_negligible() || has_unattributed()) return;
  for (Job* job : active) {
    if (!job->allowed) {
      job->demand.served += Tokens{missing};
      return;
    }
  }
  for (Job* job : idle) job->demand.served = Tokens{missing / idle.size()};
}

void CensoredDemand::attribute_to_active(const std::vector<Job*>& active, std::uint64_t& missing) {
  std::uint64_t usual = 0;
  for (const Job* job : active) usual += std::max<std::uint64_t>(job->usual, 1);
  const std::uint64_t all = missing;
  for (Job* job : active) {
    const Wide part = Wide{all} * std::max<std::uint64_t>(job->usual, 1) / usual;
    const std::uint64_t served =
        std::min({static_cast<std::uint64_t>(part), most_served(*job), missing});
    job->demand.served = Tokens{served};
    missing -= served;
  }
}

// What its rule allows: a change of the rule gives a few tokens more, and requests in service when
// the rule started are completed afterwards.
std::uint64_t CensoredDemand::most_served(const Job& job) const {
  if (!job.allowed) return UINT64_MAX;
  const std::uint64_t most = (*job.allowed + *job.allowed / 4) / kParts + kFewTokens;
  for (const Round& round : job.rounds) {
    if (round.allowed) continue;
    return std::max(most, scaled(job.usual, elapsed_, std::chrono::seconds{1}));
  }
  return most;
}

// Without a sum over all jobs the active ones are assumed to continue, for a while.
void CensoredDemand::attribute_by_time() {
  for (auto& [id, job] : jobs_) {
    if (job.demand.known || !job.seen || job.demand.state == JobDemand::State::kIdle) continue;
    if (job.away > kUnknownFor) continue;
    job.demand.served = Tokens{scaled(job.usual, elapsed_, std::chrono::seconds{1})};
  }
}

void CensoredDemand::Pace::pass(Nanoseconds elapsed, bool is_served) {
  quiet = std::min(quiet, kForgetAfter) + elapsed;
  if (!is_served) return;
  spacing -= spacing / 16;
  if (quiet <= kSpacingMax) spacing = std::max(spacing, quiet);
  quiet = Nanoseconds{0};
}

Nanoseconds CensoredDemand::spacing_of(const Job& job) const {
  return std::max({elapsed_, service_time_, job.pace.spacing, all_.spacing});
}

Nanoseconds CensoredDemand::idle_after(const Job& job) const {
  const Nanoseconds after = std::max(kIdleAfter, spacing_of(job) * 2);
  if (!job.allowed) return after;
  // Three requests of its rule.
  const std::uint64_t three =
      scaled(3 * kParts, elapsed_, Nanoseconds{1}) / std::max<std::uint64_t>(*job.allowed, 1);
  return std::clamp(Nanoseconds{static_cast<std::int64_t>(three)}, after,
                    std::max(after, kIdleMax));
}

CensoredDemand::Round CensoredDemand::recent(const Job& job, Nanoseconds time) {
  Round sum;
  for (auto round = job.rounds.rbegin(); round != job.rounds.rend() && sum.time < time; ++round) {
    sum.time += round->time;
    sum.served += round->served;
  }
  return sum;
}

// Drops the rounds that are not needed to judge.
void CensoredDemand::keep_window(Job& job) const {
  Nanoseconds time{0};
  std::uint64_t allowed = 0;
  for (const Round& round : job.rounds) {
    time += round.time;
    allowed += round.allowed.value_or(0);
  }
  const Nanoseconds least = std::max(kWindow, spacing_of(job));
  auto first = job.rounds.begin();
  for (; first + 1 < job.rounds.end(); ++first) {
    const std::uint64_t without = allowed - first->allowed.value_or(0);
    const bool is_short = job.allowed && without < kEnough * kParts && time < kWindowMax;
    if (time - first->time < least || is_short) break;
    time -= first->time;
    allowed = without;
  }
  job.rounds.erase(job.rounds.begin(), first);
}

bool CensoredDemand::is_backlogged(const Job& job) const {
  if (job.allowed) {
    std::uint64_t served = 0;
    std::uint64_t allowed = 0;
    for (const Round& round : job.rounds) {
      if (!round.allowed) continue;
      served += round.served;
      allowed += *round.allowed;
    }
    // One request more or less depends on where the window ends.
    return (served + 1) * 100 >= allowed / kParts * kRuledPercent;
  }
  const Nanoseconds spacing = spacing_of(job);
  const std::uint64_t percent =
      job.demand.since <= std::max(kReturning, spacing) ? kReturningPercent : kBackloggedPercent;
  const auto is_at_least = [&](const Round& sum, std::uint64_t least) {
    return sum.served * 100 >= scaled(job.own.count(), sum.time, elapsed_) * least;
  };
  // A few requests per round vary, so the window counts too, but not for a job that is about to
  // stop.
  const Round now = recent(job, spacing);
  const Round all = recent(job, Nanoseconds::max());
  return (is_at_least(now, percent) && now.served > 1) ||
         (is_at_least(all, percent) && is_at_least(now, kReturningPercent));
}

void CensoredDemand::judge(Job& job) {
  const std::uint64_t now = job.demand.served.count();
  const bool was_idle = job.demand.state == JobDemand::State::kIdle;
  const bool returns =
      now > 0 && (was_idle || job.pace.quiet >= std::max(kReturning, spacing_of(job) * 2));
  if (returns) job.pace.spacing = Nanoseconds{0};
  job.pace.pass(elapsed_, now > 0);
  job.rounds.push_back({elapsed_, now, job.allowed});
  keep_window(job);
  const Round window = recent(job, Nanoseconds::max());
  if (job.demand.known) job.usual = scaled(window.served, std::chrono::seconds{1}, window.time);
  if (was_idle ? now == 0 : job.pace.quiet >= idle_after(job)) {
    job.demand.state = JobDemand::State::kIdle;
    job.demand.since = Nanoseconds{0};
    job.demand.wanted = Tokens{0};
    return;
  }
  job.demand.since = returns ? elapsed_ : job.demand.since + elapsed_;
  job.demand.state = is_backlogged(job) ? JobDemand::State::kBacklogged : JobDemand::State::kActive;
  const Round lately = recent(job, spacing_of(job));
  const std::uint64_t usual = scaled(lately.served, elapsed_, lately.time);
  job.demand.wanted = Tokens{usual + usual / 4 + 1};
}

const std::vector<JobDemand>& CensoredDemand::end() {
  // Neither counted nor vanished: the job has ended.
  for (auto& [id, job] : jobs_) {
    if (job.seen) continue;
    job.demand.known = true;
    job.demand.served = Tokens{0};
    job.allowed.reset();
  }
  attribute();
  all_.pass(elapsed_, (served_all_ ? served_all_->count() : counted_) > 0);
  result_.clear();
  result_.reserve(jobs_.size());
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    judge(job->second);
    if (job->second.pace.quiet > kForgetAfter) {
      job = jobs_.erase(job);
      continue;
    }
    result_.push_back(job->second.demand);
    ++job;
  }
  return result_;
}

}  // namespace weir
