// SPDX-License-Identifier: Apache-2.0
//
// Estimates the demand of jobs on a server that reports only what it served. A job limited to a
// rate never appears to want more than that rate, so served counts alone would keep it there for
// ever; and counters of running jobs can vanish. So each job is in one of these states:
//
//   idle          nothing was served to it for kIdleAfter, or for twice the time that usually
//                 passes between its requests
//   active        it was served less than its limit: its demand is that, and a little more
//   backlogged    it was served a third of what its rule allows, or has no rule and uses all of
//                 its own share: its demand is unlimited
//   unknown       its counters vanished. It keeps its state while the server's total shows requests
//                 that no counters show; these are divided among the unknown jobs by their earlier
//                 counts, and requests beyond what their rules allow belong to an idle one.
//                 Without a total it keeps its state for kUnknownFor
//   unattributed  not one job, but all jobs whose counters never existed: for kWindow, a quarter of
//                 the served requests belonged to no job, while no job was unknown. Requests that
//                 are missing later are then unattributed too, and make no idle job active
//
//   demand.begin(elapsed, total served by the server);
//   demand.count({job, served, rate});   ...   for each job that has counters
//   for (const JobDemand& job : demand.end()) ...
//
// How long a job is observed before it is judged depends on the spacing of its requests: on a
// device that completes 40 requests every 100 ms and none in between, an empty round of 20 ms says
// nothing. The spacing is the longest recent time from one round with completions to the next, of
// the job or of the server as a whole. A job with a rule is observed until the rule has allowed
// kEnough requests.
//
// `rate` is that of its rule, as written; none without a rule. Integers only, no clock; one owner.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <absl/container/btree_map.h>

#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"

namespace weir {

struct JobDemand {
  enum class State : std::uint8_t { kIdle, kActive, kBacklogged };

  JobId job;
  State state = State::kIdle;
  bool known = true;     // it has counters
  Tokens served{};       // in the round; of an unknown job: as attributed
  Tokens wanted{};       // demand in a round of this length; unlimited if backlogged
  Nanoseconds since{0};  // time since it became active, or was served again after a pause
};

class CensoredDemand {
 public:
  // A shorter pause does not make a job idle.
  static constexpr Nanoseconds kIdleAfter = std::chrono::milliseconds{250};
  static constexpr Nanoseconds kUnknownFor = std::chrono::seconds{1};
  // Least time over which a job is compared with its rule or its share, and the requests that its
  // rule allows in this time, if that takes no longer than kWindowMax.
  static constexpr Nanoseconds kWindow = std::chrono::milliseconds{100};
  static constexpr Nanoseconds kWindowMax = std::chrono::seconds{2};
  static constexpr std::uint64_t kEnough = 8;
  // Longer pauses are not spacing.
  static constexpr Nanoseconds kSpacingMax = std::chrono::milliseconds{500};
  // In this time after it became active a job counts as backlogged with half of its own share: its
  // first round may have started anywhere in the period.
  static constexpr Nanoseconds kReturning = std::chrono::milliseconds{100};
  static constexpr std::uint64_t kBackloggedPercent = 80;
  static constexpr std::uint64_t kReturningPercent = 40;
  // Of what its rule allows. A class waits for its token and then for its turn among the others:
  // where the server takes 16 requests at once every 40 ms, a class of 65 a second gets 25
  // (docs/design/lustre.md).
  static constexpr std::uint64_t kRuledPercent = 33;

  struct Count {
    JobId job;
    Tokens served{};
    std::optional<Rate> rate = {};  // of its rule
    Tokens own{};                   // its share if all others were backlogged too
  };

  // Starts a round of this length; the total is over all jobs, with and without counters. Requests
  // that start together end together, so spacing is at least the time that a request takes.
  void begin(Nanoseconds elapsed, std::optional<Tokens> served_all,
             Nanoseconds service_time = Nanoseconds{0});
  // In the order of job ids, each once.
  void count(const Count& count);
  // A job whose counters vanished. A job that is not known is ignored.
  void vanish(const JobId& job, std::optional<Rate> rate, Tokens own);
  // All known jobs. Valid until begin().
  const std::vector<JobDemand>& end();

  bool is_known(const JobId& job) const { return jobs_.contains(job); }
  // Whether there are requests that belong to no known job.
  bool has_unattributed() const { return unattributed_for_ >= kWindow; }
  // Known jobs, in the order of their ids.
  std::vector<JobId> jobs() const;
  // Of the completions of the server as a whole.
  Nanoseconds spacing() const { return all_.spacing; }

 private:
  struct Round {
    Nanoseconds time{0};
    std::uint64_t served = 0;
    std::optional<std::uint64_t> allowed;  // in 1/kParts of a request
  };
  // From one round with completions to the next.
  struct Pace {
    Nanoseconds quiet;    // time since the last one
    Nanoseconds spacing;  // the longest lately

    void pass(Nanoseconds elapsed, bool is_served);
  };
  struct Job {
    JobDemand demand;
    std::vector<Round> rounds;  // of its window
    Pace pace{};
    Nanoseconds away{0};                   // time since its counters vanished
    std::uint64_t usual = 0;               // served a second, when it was last known
    std::optional<std::uint64_t> allowed;  // in this round, in 1/kParts of a request
    Tokens own{};
    bool seen = false;
  };

  // What a rule allows in a round may be less than one request.
  static constexpr std::uint64_t kParts = 1024;

  std::optional<std::uint64_t> allowed_by(std::optional<Rate> rate) const;
  void attribute();
  void attribute_by_time();
  void attribute_to_active(const std::vector<Job*>& active, std::uint64_t& missing);
  std::uint64_t most_served(const Job& job) const;
  void judge(Job& job);
  void keep_window(Job& job) const;
  bool is_backlogged(const Job& job) const;
  Nanoseconds spacing_of(const Job& job) const;
  Nanoseconds idle_after(const Job& job) const;
  // Over the last rounds that cover this time.
  static Round recent(const Job& job, Nanoseconds time);

  Nanoseconds elapsed_{0};
  Nanoseconds service_time_{0};
  std::optional<Tokens> served_all_;
  std::uint64_t counted_ = 0;
  Pace all_{};
  Nanoseconds unattributed_for_{0};  // time for which requests have been unattributed
  absl::btree_map<JobId, Job> jobs_;
  std::vector<JobDemand> result_;
};

}  // namespace weir
