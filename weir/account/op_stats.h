// SPDX-License-Identifier: Apache-2.0
//
// Operation counters of jobs on one export, as in job_stats of a Lustre server: number, minimum,
// maximum, sum and sum of squares, and for bytes a histogram by powers of two. Latencies are those
// of the device, without the wait in the scheduler.
//
//   OpStats::Handle handle;                          one for each connection
//   stats.record(handle, job, record);               of each request that succeeded
//
// Jobs are kept in order of arrival. A job that was idle for longer than the cleanup interval is
// removed when the next new job arrives or the statistics are read; above jobs_max the job that was
// idle longest is removed. A second list is in the order of last requests, so that a client that
// invents job ids costs O(1) for each. Requests without a job count in total() only, to which
// removed jobs also belong: it never decreases.
//
// A handle remembers where its job is, so that recording needs no search; a stale handle is
// detected and the job is searched again. No clock; one owner, no locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>

#include <absl/container/flat_hash_map.h>

#include "weir/account/request_record.h"
#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"

namespace weir {

class OpStats {
 public:
  static constexpr std::size_t kJobsMaxDefault = 8192;
  static constexpr Nanoseconds kCleanupDefault = std::chrono::seconds{600};

  enum class Op : std::uint8_t { kRead, kWrite, kPunch, kSync };
  static constexpr std::size_t kOps = 4;

  struct Sum {
    std::uint64_t samples = 0;
    std::uint64_t min = 0;
    std::uint64_t max = 0;
    std::uint64_t sum = 0;
    std::uint64_t sumsq = 0;

    void add(std::uint64_t value);
    Sum& operator+=(const Sum& more);
    bool operator==(const Sum&) const = default;
  };
  // Bucket b counts values of at most 2^b that are above 2^(b-1).
  struct ByteSum : Sum {
    static constexpr std::size_t kBuckets = 33;
    std::array<std::uint64_t, kBuckets> buckets{};

    void add(std::uint64_t value);
    ByteSum& operator+=(const ByteSum& more);
  };
  struct Operations {
    void record(Op op, const RequestRecord& record);
    Operations& operator+=(const Operations& more);

    Instant since = kNever;  // of the first one
    Instant updated{};
    ByteSum read_bytes;
    ByteSum write_bytes;
    std::array<Sum, kOps> usecs{};
  };
  struct Job : Operations {
    JobId id;
    RingLink<Job> idle_link{};  // the longest idle first
  };

  // Where a job was last found.
  class Handle {
    friend class OpStats;
    Job* job_ = nullptr;
    std::uint64_t generation_ = 0;
  };

  // REQUIRES: jobs_max > 0.
  explicit OpStats(std::size_t jobs_max = kJobsMaxDefault) : jobs_max_(jobs_max) {}
  ~OpStats() { clear(); }
  OpStats(const OpStats&) = delete;
  OpStats& operator=(const OpStats&) = delete;

  // Operations without a counter are ignored. REQUIRES: records arrive in the order of completion.
  void record(Handle& handle, const JobId& job, const RequestRecord& record);

  // In order of arrival; first removes jobs that were idle for too long.
  const std::list<Job>& jobs(Instant now);
  // Of all requests since the start, O(jobs).
  Operations total() const;
  void clear();
  // False if there is no such job.
  bool drop(const JobId& job);

  // 0: never.
  Nanoseconds cleanup_interval() const { return cleanup_; }
  void set_cleanup_interval(Nanoseconds interval) { cleanup_ = interval; }

 private:
  Job& job_of(const JobId& id, Instant now);
  void drop_idle(Instant now);

  std::size_t jobs_max_;
  std::list<Job> jobs_;
  Ring<Job, &Job::idle_link> by_idle_time_;
  absl::flat_hash_map<JobId, std::list<Job>::iterator, std::hash<JobId>> index_;
  Operations apart_;  // of removed jobs, and of requests without a job
  Nanoseconds cleanup_ = kCleanupDefault;
  std::uint64_t generation_ = 1;  // increases when a job is removed
};

}  // namespace weir
