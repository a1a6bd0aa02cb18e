// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/holds.h"

#include <algorithm>

namespace weir::lustre {

void Hold::add(const Hold& other) {
  times += other.times;
  total += other.total;
  longest = std::max(longest, other.longest);
  if (lowest == 0 || (other.lowest != 0 && other.lowest < lowest)) lowest = other.lowest;
}

void Holds::stop(Hold& hold, Instant now) {
  const Nanoseconds time = now - *hold.since;
  hold.total += time;
  hold.longest = std::max(hold.longest, time);
  hold.since.reset();
  hold.rate.reset();
  --held_;
}

void Holds::change(const JobRateChange& change, Instant now) {
  const auto found = jobs_.find(change.job);
  if (!change.rate) {
    if (found == jobs_.end() || !found->second.since) return;
    stop(found->second, now);
    found->second.reason = change.reason;
    return;
  }
  if (found == jobs_.end() && jobs_.size() - held_ >= kJobsMax) forget_one();
  Hold& hold = jobs_[change.job];
  if (!hold.since) {
    hold.since = now;
    ++hold.times;
    ++held_;
  }
  hold.rate = change.rate;
  hold.reason = change.reason;
  hold.lowest = hold.lowest == 0 ? *change.rate : std::min(hold.lowest, *change.rate);
}

void Holds::clear(Instant now) {
  for (auto& [job, hold] : jobs_) {
    if (hold.since) stop(hold, now);
  }
}

// The one that was held for the shortest time.
void Holds::forget_one() {
  auto least = jobs_.end();
  for (auto each = jobs_.begin(); each != jobs_.end(); ++each) {
    if (each->second.since) continue;
    if (least == jobs_.end() || each->second.total < least->second.total) least = each;
  }
  others_.add(least->second);
  jobs_.erase(least);
}

std::vector<Holds::OfJob> Holds::list(Instant now) const {
  std::vector<OfJob> all;
  all.reserve(jobs_.size());
  for (const auto& [job, hold] : jobs_) {
    OfJob& each = all.emplace_back(OfJob{job, hold});
    if (!hold.since) continue;
    each.hold.total += now - *hold.since;
    each.hold.longest = std::max(each.hold.longest, now - *hold.since);
  }
  return all;
}

const Hold* Holds::find(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

}  // namespace weir::lustre
