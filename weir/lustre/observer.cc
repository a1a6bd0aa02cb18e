// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/observer.h"

#include <iterator>

#include "weir/lustre/names.h"

namespace weir::lustre {

void Observer::count_target(const TargetView& target, Instant now,
                            std::map<JobId, JobCount>& sums) {
  const bool is_first = !last_.contains(target.name);
  std::map<JobId, Last>& last = last_[target.name];
  for (const JobCounters& job : target.jobs) {
    auto [found, is_new] = last.try_emplace(job.job);
    Last& before = found->second;
    // Times depend on enable_stats_header; two different times mean two entries.
    const bool has_times = before.since_ns && job.since_ns;
    const bool is_other = has_times && before.since_ns != job.since_ns;
    const bool began_anew = is_new || is_other || (!has_times && before.rpcs > job.rpcs);
    std::uint64_t served = job.rpcs;
    if (!began_anew) served = job.rpcs > before.rpcs ? job.rpcs - before.rpcs : 0;
    if (is_first) served = 0;  // unknown since when
    before = {.rpcs = job.rpcs, .since_ns = job.since_ns, .seen_at = now};
    JobCount& sum = sums[job.job];
    if (!sum.known) sum.served = Tokens{0};
    sum.known = true;
    sum.served += Tokens{served};
  }
  for (auto each = last.begin(); each != last.end();) {
    const Nanoseconds away = now - each->second.seen_at;
    if (away == Nanoseconds{0}) {
      ++each;
      continue;
    }
    const bool is_missed = !keeps_ || keeps_(each->first);
    if (is_missed) {
      // A job that another target still counts is known.
      const auto [sum, is_new] = sums.try_emplace(each->first);
      if (is_new) sum->second.known = false;
    }
    const bool is_kept = away < kKeepFor || (keeps_ && is_missed);
    each = is_kept ? std::next(each) : last.erase(each);
  }
}

void Observer::count(const View& view, Instant now, RuleRound& round) {
  std::map<JobId, JobCount> sums;
  std::uint64_t all = 0;
  bool all_known = !view.targets.empty();
  for (const TargetView& target : view.targets) {
    count_target(target, now, sums);
    const auto before = last_rpcs_.find(target.name);
    if (!target.rpcs || before == last_rpcs_.end() || *target.rpcs < before->second) {
      all_known = false;
    } else {
      all += *target.rpcs - before->second;
    }
    if (target.rpcs) last_rpcs_[target.name] = *target.rpcs;
  }
  round.at = now;
  round.queued = view.policies.queued();
  round.busy = view.policies.active();
  round.served_all = all_known ? std::optional(Tokens{all}) : std::nullopt;
  round.jobs.clear();
  round.jobs.reserve(sums.size());
  unnamed_ = 0;
  for (auto& [job, count] : sums) {
    count.job = job;
    count.can_hold = is_expressible(job);
    if (!count.can_hold && count.served > Tokens{0}) ++unnamed_;
    round.jobs.push_back(count);
  }
}

}  // namespace weir::lustre
