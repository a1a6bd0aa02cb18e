// SPDX-License-Identifier: Apache-2.0
//
// Statistics of the jobs on a target: requests and tokens that arrived, started and finished,
// bytes, wait and latency. Counters only increase, so that any number of readers can each compute
// differences; there is no "clear" that other readers would notice.
//
//   JobStats::Entry& entry = stats.hold(job, now);      once, for example by a queue of that job
//   entry.arrive(cost, now);  stats.start(entry, ...);  entry.finish(record, ...);    per request
//   stats.release(entry);                                when the queue ends
//
//   waiting = arrived - started - withdrawn          running = started - finished - abandoned
//
// Until a request finishes, its estimated cost is counted. When it finishes, the difference from
// its actual cost is counted:   served = finished + surcharged - refunded
//
// At most jobs_max jobs are kept. An entry that is held stays. If there is no room, the entry that
// was released longest ago is removed and its counters are added to gone(), so that totals never
// decrease. If all entries are held, new jobs share overflow(), which is counted: invented job ids
// take no memory. A job that was removed and returns starts from 0, with another `since`.
//
// Histograms of wait and device times (job_times.h) are pages lent to at most timed_max jobs; all
// others share one page. While there are free pages, a new job gets one. Later a job takes the page
// of another one that has waited less than half as long, or is idle. It tries whenever the sum of
// its waits has doubled, and looks at a few pages then, so that the pages go to the most delayed
// jobs, at a cost that does not depend on their number. What was recorded in a page that is taken
// is added to the shared one: shared_times() and all pages add up to all requests.
//
// O(1). Does not allocate per request; entries are allocated when they are first used. No clock;
// one owner, no locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/account/job_times.h"
#include "weir/account/request_record.h"
#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir {

class JobStats {
 public:
  static constexpr std::size_t kJobsMaxDefault = 8192;

  struct Count {
    std::uint64_t requests = 0;
    Tokens cost{};

    void add(Tokens more) {
      ++requests;
      cost += more;
    }
    Count& operator+=(const Count& other);
    friend Count operator-(const Count& a, const Count& b) {
      return {a.requests - b.requests, a.cost - b.cost};
    }
    bool operator==(const Count&) const = default;
  };
  struct Entry {
    JobId job{};
    Instant since{};      // when its counters were 0
    Instant last_seen{};  // when a request last arrived or finished
    Count arrived{};
    Count started{};
    Count withdrawn{};  // requests withdrawn before they started
    Count abandoned{};  // requests that started but never reached the device
    Count finished{};
    Tokens surcharged{};
    Tokens refunded{};
    Bytes read{};
    Bytes written{};
    Nanoseconds wait_sum{0};
    Nanoseconds latency_sum{0};
    Nanoseconds device_sum{0};  // of latency_sum, without the waits
    Nanoseconds latency_max{0};
    JobTimes* times = nullptr;  // its page, or the shared one
    std::uint64_t mark = 0;     // for the owner: marks entries that it has already visited

    void arrive(Tokens cost, Instant now) {
      arrived.add(cost);
      last_seen = now;
    }
    void withdraw(Tokens cost) { withdrawn.add(cost); }
    void abandon(Tokens cost) { abandoned.add(cost); }
    // Cost as charged on arrival, and actual cost.
    void finish(const RequestRecord& record, Tokens at_arrival, Tokens settled) {
      finished.add(at_arrival);
      if (settled > at_arrival) {
        surcharged += settled - at_arrival;
      } else {
        refunded += at_arrival - settled;
      }
      read += record.read();
      written += record.written();
      latency_sum += record.latency();
      device_sum += record.device_time();
      latency_max = std::max(latency_max, record.latency());
      last_seen = record.ended;
      times->finish(record);
    }

    Count waiting() const { return arrived - started - withdrawn; }
    Count running() const { return started - finished - abandoned; }
    // Only increases, because a refund never exceeds what the request was charged.
    Count served() const { return {finished.requests, finished.cost + surcharged - refunded}; }

   private:
    friend class JobStats;
    void start(const RequestRecord& record, Tokens cost) {
      started.add(cost);
      wait_sum += record.waited();
      times->start(record);
    }

    std::uint32_t holds_ = 0;
    // Neighbours in the list of entries that are not held, oldest first.
    Entry* older_ = nullptr;
    Entry* newer_ = nullptr;
  };

  // A page of times, and the entry that has it.
  struct TimedJob {
    JobTimes times{};
    Entry* entry = nullptr;
  };

  explicit JobStats(std::size_t jobs_max = kJobsMaxDefault, std::size_t timed_max = 0);
  JobStats(const JobStats&) = delete;
  JobStats& operator=(const JobStats&) = delete;

  // The entry of a job, for as long as it is held; each hold needs a release. REQUIRES of release:
  // none of the requests that the holder counted is waiting or running.
  Entry& hold(const JobId& job, Instant now);
  // The same. `last` is an entry that was held for this job before, or nullptr: saves the search
  // if it is still in use.
  Entry& hold(const JobId& job, Instant now, Entry* last) {
    const bool is_used = last != nullptr && last->holds_ > 0 && last != &overflow_;
    if (!is_used || last->job != job) return hold(job, now);
    ++last->holds_;
    return *last;
  }
  void release(Entry& entry);

  // A request of a held entry starts.
  void start(Entry& entry, const RequestRecord& record, Tokens cost) {
    const Nanoseconds before = entry.wait_sum;
    entry.start(record, cost);
    if (entry.times == &shared_times_) [[unlikely]]
      contend(entry, before);
  }

  // Called for each job whose entry is removed to make room.
  void on_forget(std::function<void(const JobId&)> listener) { listener_ = std::move(listener); }

  // nullptr if the job has no entry.
  const Entry* find(const JobId& job) const;
  // In the order of ids, without overflow().
  std::vector<const Entry*> sorted() const;
  std::size_t size() const { return index_.size(); }
  // By index, in no particular order; a hold() may change the indexes. REQUIRES: at < size().
  const Entry& entry(std::size_t at) const { return entries_[at]; }

  // Shared by jobs for which there was no room, and the number of such jobs.
  const Entry& overflow() const { return overflow_; }
  std::uint64_t overflowed() const { return overflowed_; }
  // The sum of all removed entries, and their number.
  const Entry& gone() const { return gone_; }
  std::uint64_t forgotten() const { return forgotten_; }

  // The pages, by index, in no particular order. REQUIRES: at < timed_jobs().
  std::size_t timed_jobs() const { return pages_.size(); }
  const TimedJob& timed_job(std::size_t at) const { return pages_[at]; }
  // Times of all requests that are in no page.
  const JobTimes& shared_times() const { return shared_times_; }

 private:
  Entry* place_for_another();
  void unlink(Entry& entry);
  void contend(Entry& entry, Nanoseconds before);

  std::size_t jobs_max_;
  std::size_t timed_max_;
  std::deque<Entry> entries_;  // a deque, because entries must not move
  absl::flat_hash_map<JobId, Entry*, std::hash<JobId>> index_;
  Entry* oldest_ = nullptr;
  Entry* newest_ = nullptr;
  std::function<void(const JobId&)> listener_;
  Entry overflow_;
  Entry gone_;
  JobTimes shared_times_;
  std::deque<TimedJob> pages_;
  std::size_t next_page_ = 0;  // the page that the next contender looks at first
  std::uint64_t overflowed_ = 0;
  std::uint64_t forgotten_ = 0;
};

}  // namespace weir
