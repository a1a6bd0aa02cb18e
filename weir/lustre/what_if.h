// SPDX-License-Identifier: Apache-2.0
//
// What the driver would have done in a recording: the rounds are given to the RuleController that
// runs in production, and the rules that it asks for are pretended.
//
//   WhatIf what_if(options);
//   while (next round)  what_if.add(recorded);
//   what_if.finish();      what_if.jobs(), what_if.holds(), ...
//
// A rule changes what a job is served, and that changes the next decision, so the recorded counts
// are changed too. In each round the server does as much as it did; it is divided anew:
//   a job with a rule       at most what the rule allows: rate x reached CPTs, and the free tokens
//                           of a change
//   what that leaves        goes to the other jobs that want more, in equal parts
//   what no job wants       is lost: the rule left the server idle
// Which jobs want more is what a recording cannot say, since it has what was served and not what
// was asked for. So there are two extremes, and the truth is between them:
//   kFixed      no job has more to do in a round than was recorded: what a held job leaves is lost
//   kEndless    jobs that are backlogged always have more to do
// Not predicted: how long single requests take, and jobs that behave differently because they are
// faster. Rules that others had in effect limit what was recorded.
//
// No clock; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "weir/adapt/rule_controller.h"
#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/lustre/holds.h"
#include "weir/lustre/recording.h"

namespace weir::lustre {

class WhatIf {
 public:
  enum class Work : std::uint8_t { kFixed, kEndless };

  static constexpr std::size_t kListMax = 1000;
  static constexpr std::size_t kJobsMax = 65536;

  struct Job {
    std::uint64_t served = 0;  // as recorded
    std::uint64_t less = 0;    // it was held: requests that would have been served later, or not
    std::uint64_t more = 0;    // others were held: requests that would have been served earlier
    Hold hold;
  };
  // A time for which a job would have been held.
  struct Span {
    JobId job;
    Instant from;
    Instant to;
    std::uint32_t lowest = 0;
  };

  WhatIf(const RuleController::Options& options, Work work);

  void set_nodes(const JobId& job, std::uint64_t nodes) { (void)controller_.set_nodes(job, nodes); }
  void add(const RecordedRound& recorded);
  void finish();

  const RuleController& controller() const { return controller_; }
  // Those that were served anything, in the order of their ids; beyond kJobsMax only those that
  // are active at the end.
  std::vector<std::pair<JobId, Job>> jobs() const;
  std::uint64_t forgotten() const { return forgotten_; }
  // The first kListMax, in the order of their ends.
  const std::vector<Span>& spans() const { return spans_; }
  std::uint64_t spans_all() const { return spans_all_; }
  std::uint64_t served() const { return served_; }
  std::uint64_t lost() const { return lost_; }
  std::uint64_t changes() const { return changes_; }
  // Time for which rules of others were in effect.
  Nanoseconds ruled() const { return ruled_; }

 private:
  struct Held {
    std::uint32_t rate = 0;
    std::uint64_t part = 0;  // of a request that its rule allows, in 1/10^9
    std::uint64_t allowed = 0;
  };
  struct Sums {
    std::uint64_t served = 0;
    std::uint64_t less = 0;
    std::uint64_t more = 0;
    std::int64_t lead = 0;  // requests done ahead of the recording; below 0: behind
  };
  struct Part {
    std::size_t at = 0;  // in the round
    std::uint64_t recorded = 0;
    std::uint64_t got = 0;
    std::uint64_t wants = 0;
  };

  void allow(Nanoseconds elapsed);
  void divide(RuleRound& round);
  std::uint64_t wanted_by(const JobCount& job) const;
  std::uint64_t hand_out(std::vector<Part>& parts, std::uint64_t amount);
  void settle(RuleRound& round, const std::vector<Part>& parts);
  void apply(const std::vector<JobRateChange>& changes, Instant now);
  void forget_jobs();

  RuleController controller_;
  Work work_;
  std::optional<Instant> last_;
  std::vector<RuleSeen> rules_;
  std::map<JobId, Held> held_;
  std::map<JobId, Sums> sums_;
  Holds holds_;
  std::vector<Span> spans_;
  std::map<JobId, Span> open_;
  std::uint64_t spans_all_ = 0;
  std::uint64_t served_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t forgotten_ = 0;
  std::uint64_t changes_ = 0;
  Nanoseconds ruled_{0};
};

}  // namespace weir::lustre
