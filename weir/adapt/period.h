// SPDX-License-Identifier: Apache-2.0
//
// What a controller observed and decided in a period: the input and the output of one round, for
// code that draws, prints or checks it. Jobs are in the order of their ids; those that were not
// active are not in it, and what they have lent or borrowed is in the Ledger. Values only; tokens
// throughout (one an operation, or the cost units of the target).
//
// Records outlive the periods in which a job is active, and fade meanwhile: `records` has those of
// all jobs, so a reader of one report does not need the earlier ones.
#pragma once

#include <cstdint>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir {

// One active job in a period that has just ended.
struct JobPeriod {
  JobId job;
  std::uint64_t nodes = 1;
  Tokens demand;
  Tokens initial;           // by nodes alone
  Tokens redistributed;     // after what others did not need
  Tokens final;             // after what was owed: what the job may use in the next period
  std::int64_t record = 0;  // above 0: it has lent; below: it has borrowed
  Tokens borrowed;          // instant loans of the period, before settling
  Tokens lent;
};

// What a job has lent (above 0) or borrowed (below), whether it is active or not.
struct JobRecord {
  JobId job;
  std::int64_t record = 0;
};

struct PeriodReport {
  Instant at;                      // the end of the period
  Tokens budget;                   // what was shared out
  std::vector<JobPeriod> jobs;     // those that were active
  std::vector<JobRecord> records;  // of all jobs that have one; they sum to 0
};

}  // namespace weir
