// SPDX-License-Identifier: Apache-2.0
#include "weir/account/job_stats.h"

#include <bit>

#include "weir/base/assert.h"

namespace weir {
namespace {

// Pages that a job looks at when the sum of its waits has doubled.
constexpr std::size_t kPagesTried = 8;
// A job without requests for so long gives its page to any other.
constexpr Nanoseconds kPageIdle = std::chrono::minutes{1};

auto bits_of(Nanoseconds time) {
  return std::bit_width(static_cast<std::uint64_t>(std::max(time, Nanoseconds{0}).count()));
}

}  // namespace

JobStats::Count& JobStats::Count::operator+=(const Count& other) {
  requests += other.requests;
  cost += other.cost;
  return *this;
}

JobStats::JobStats(std::size_t jobs_max, std::size_t timed_max)
    : jobs_max_(jobs_max), timed_max_(timed_max) {
  WEIR_ASSERT(jobs_max > 0, jobs_max);
  index_.reserve(jobs_max);
  overflow_.times = gone_.times = &shared_times_;
}

JobStats::Entry& JobStats::hold(const JobId& job, Instant now) {
  Entry* entry = nullptr;
  if (const auto found = index_.find(job); found != index_.end()) {
    entry = found->second;
    if (entry->holds_ == 0) unlink(*entry);
  } else if (entry = place_for_another(); entry != nullptr) {
    JobTimes* times = entry->times;  // of the entry that was removed
    if (times == nullptr) {
      times = pages_.size() < timed_max_ ? &pages_.emplace_back(TimedJob{{}, entry}).times
                                         : &shared_times_;
    }
    *entry = {};
    entry->times = times;
    entry->job = job;
    entry->since = entry->last_seen = now;
    index_.emplace(job, entry);
  } else {
    ++overflowed_;
    entry = &overflow_;
  }
  ++entry->holds_;
  return *entry;
}

void JobStats::release(Entry& entry) {
  WEIR_ASSERT(entry.holds_ > 0);
  if (--entry.holds_ > 0 || &entry == &overflow_) return;
  entry.older_ = newest_;
  entry.newer_ = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->newer_) = &entry;
  newest_ = &entry;
}

// A new entry, or that of the job released longest ago; nullptr if all are held.
JobStats::Entry* JobStats::place_for_another() {
  if (index_.size() < jobs_max_) return &entries_.emplace_back();
  Entry* entry = oldest_;
  if (entry == nullptr) return nullptr;
  unlink(*entry);
  index_.erase(entry->job);
  gone_.arrived += entry->arrived;
  gone_.started += entry->started;
  gone_.withdrawn += entry->withdrawn;
  gone_.abandoned += entry->abandoned;
  gone_.finished += entry->finished;
  gone_.surcharged += entry->surcharged;
  gone_.refunded += entry->refunded;
  gone_.read += entry->read;
  gone_.written += entry->written;
  gone_.wait_sum += entry->wait_sum;
  gone_.latency_sum += entry->latency_sum;
  gone_.device_sum += entry->device_sum;
  gone_.latency_max = std::max(gone_.latency_max, entry->latency_max);
  gone_.last_seen = std::max(gone_.last_seen, entry->last_seen);
  if (entry->times != &shared_times_) {
    shared_times_ += *entry->times;
    *entry->times = {};
  }
  ++forgotten_;
  if (listener_) listener_(entry->job);
  return entry;
}

// The entry has no page, and another request of it has started.
void JobStats::contend(Entry& entry, Nanoseconds before) {
  if (pages_.empty() || &entry == &overflow_ || bits_of(before) == bits_of(entry.wait_sum)) return;
  for (std::size_t tried = 0; tried < std::min(kPagesTried, pages_.size()); ++tried) {
    TimedJob& page = pages_[next_page_];
    next_page_ = next_page_ + 1 == pages_.size() ? 0 : next_page_ + 1;
    Entry& holder = *page.entry;
    const bool is_idle = holder.holds_ == 0 && entry.last_seen - holder.last_seen > kPageIdle;
    if (!is_idle && 2 * holder.wait_sum >= entry.wait_sum) continue;
    shared_times_ += page.times;
    page = {{}, &entry};
    holder.times = &shared_times_;
    entry.times = &page.times;
    return;
  }
}

void JobStats::unlink(Entry& entry) {
  (entry.older_ == nullptr ? oldest_ : entry.older_->newer_) = entry.newer_;
  (entry.newer_ == nullptr ? newest_ : entry.newer_->older_) = entry.older_;
  entry.older_ = entry.newer_ = nullptr;
}

const JobStats::Entry* JobStats::find(const JobId& job) const {
  const auto found = index_.find(job);
  return found == index_.end() ? nullptr : found->second;
}

std::vector<const JobStats::Entry*> JobStats::sorted() const {
  std::vector<const Entry*> all;
  all.reserve(index_.size());
  for (const auto& [job, entry] : index_) all.push_back(entry);
  std::sort(all.begin(), all.end(), [](const Entry* a, const Entry* b) { return a->job < b->job; });
  return all;
}

}  // namespace weir
