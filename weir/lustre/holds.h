// SPDX-License-Identifier: Apache-2.0
//
// Which jobs are held, since when, at which rate and why; and the sums of earlier holds. Follows
// the changes of the rules, real or pretended, for reports and for the control socket.
//
//   holds.change({job, 102, "its share is ..."}, now);      holds.find(job)->since
//   holds.change({job, std::nullopt, "no other job is active"}, now);
//   holds.list(now)                                  all jobs that were ever held, in order of ids
//
// Bounded: jobs that are not held now, beyond kJobsMax, are added up in others().
// No clock; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weir/adapt/rule_controller.h"
#include "weir/base/job_id.h"
#include "weir/base/time.h"

namespace weir::lustre {

struct Hold {
  std::optional<std::uint32_t> rate;  // of its rule; none: it is not held now
  std::optional<Instant> since;       // when it was held, without a break
  std::string reason;                 // of the last change
  std::uint64_t times = 0;            // that it was held, the current one included
  Nanoseconds total{0};
  Nanoseconds longest{0};
  std::uint32_t lowest = 0;  // rate ever; 0: never held

  void add(const Hold& other);
};

class Holds {
 public:
  static constexpr std::size_t kJobsMax = 1024;

  void change(const JobRateChange& change, Instant now);
  // All rules are gone.
  void clear(Instant now);

  struct OfJob {
    JobId job;
    Hold hold;  // with the time up to now
  };
  std::vector<OfJob> list(Instant now) const;
  const Hold* find(const JobId& job) const;
  std::size_t held() const { return held_; }
  // Sums of the jobs that were forgotten.
  const Hold& others() const { return others_; }

 private:
  void stop(Hold& hold, Instant now);
  void forget_one();

  std::map<JobId, Hold> jobs_;
  std::size_t held_ = 0;
  Hold others_;
};

}  // namespace weir::lustre
