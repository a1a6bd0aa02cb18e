// SPDX-License-Identifier: Apache-2.0
//
// What jobs did on a target: requests and tokens that arrived, started and finished, bytes, waiting
// and latency. Counters only grow, so that any number of readers can each take differences; there
// is no "clear" that others would notice.
//
//   JobStats::Entry& entry = stats.hold(job, now);      once, for example by a queue of that job
//   entry.arrive(cost, now);  entry.start(record, cost);  entry.finish(record, ...);    per request
//   stats.release(entry);                                when the queue ends
//
//   waiting = arrived - started - withdrawn          running = started - finished - abandoned
//
// What a request costs is counted as it was estimated until it finishes; what it cost in the end is
// counted then, by the difference:   served = finished + surcharged - refunded
//
// At most jobs_max jobs are kept. An entry that is held stays where it is; of the others the one
// released longest ago makes room, and its counters go into gone(), so that totals never shrink. If
// all are held, newcomers share overflow(), which is counted: invented job ids take no memory. A
// job that was forgotten and returns starts from 0 again, with another `since`.
//
// O(1); allocates nothing per request, and after the constructor only as entries come into use. No
// clock; one owner, no locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

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
    Instant since{};      // its counters were 0
    Instant last_seen{};  // a request arrived or finished
    Count arrived{};
    Count started{};
    Count withdrawn{};  // before they started
    Count abandoned{};  // after that, but the device has never seen them
    Count finished{};
    Tokens surcharged{};
    Tokens refunded{};
    Bytes read{};
    Bytes written{};
    Nanoseconds wait_sum{0};
    Nanoseconds latency_sum{0};
    Nanoseconds latency_max{0};
    std::uint64_t mark = 0;  // the owner's, to know whom it has met

    void arrive(Tokens cost, Instant now) {
      arrived.add(cost);
      last_seen = now;
    }
    void withdraw(Tokens cost) { withdrawn.add(cost); }
    void abandon(Tokens cost) { abandoned.add(cost); }
    void start(const RequestRecord& record, Tokens cost) {
      started.add(cost);
      wait_sum += record.waited();
    }
    // What it cost when it arrived, and in the end.
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
      latency_max = std::max(latency_max, record.latency());
      last_seen = record.ended;
    }

    Count waiting() const { return arrived - started - withdrawn; }
    Count running() const { return started - finished - abandoned; }
    // Only grows, since a request that gets something back has paid it.
    Count served() const { return {finished.requests, finished.cost + surcharged - refunded}; }

   private:
    friend class JobStats;
    std::uint32_t holds_ = 0;
    // Neighbours in the list of those not held, longest ago first.
    Entry* older_ = nullptr;
    Entry* newer_ = nullptr;
  };

  explicit JobStats(std::size_t jobs_max = kJobsMaxDefault);
  JobStats(const JobStats&) = delete;
  JobStats& operator=(const JobStats&) = delete;

  // The entry of a job, for as long as it is held; each hold needs a release. REQUIRES of release:
  // what the holder counted is neither waiting nor running any more.
  Entry& hold(const JobId& job, Instant now);
  void release(Entry& entry);

  // Told of each job whose entry makes room.
  void on_forget(std::function<void(const JobId&)> listener) { listener_ = std::move(listener); }

  // None if the job is not kept.
  const Entry* find(const JobId& job) const;
  // In the order of ids, without overflow().
  std::vector<const Entry*> sorted() const;
  std::size_t size() const { return index_.size(); }
  // One after another, in no order that means anything; may be another one after a hold().
  // REQUIRES: at < size().
  const Entry& entry(std::size_t at) const { return entries_[at]; }

  // Shared by those there was no room for, and how often that was so.
  const Entry& overflow() const { return overflow_; }
  std::uint64_t overflowed() const { return overflowed_; }
  // The sum of entries that made room, and how many.
  const Entry& gone() const { return gone_; }
  std::uint64_t forgotten() const { return forgotten_; }

 private:
  Entry* place_for_another();
  void unlink(Entry& entry);

  std::size_t jobs_max_;
  std::deque<Entry> entries_;  // never moves what it holds
  absl::flat_hash_map<JobId, Entry*, std::hash<JobId>> index_;
  Entry* oldest_ = nullptr;
  Entry* newest_ = nullptr;
  std::function<void(const JobId&)> listener_;
  Entry overflow_;
  Entry gone_;
  std::uint64_t overflowed_ = 0;
  std::uint64_t forgotten_ = 0;
};

}  // namespace weir
