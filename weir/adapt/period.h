// SPDX-License-Identifier: Apache-2.0
//
// The observations and decisions of a controller in one period, for code that plots, prints or
// checks them. Jobs are in the order of their ids; inactive jobs are not included, and their
// lending is in the Ledger. Values only; all amounts are tokens (one per operation, or the cost
// units of the target).
//
// Records continue, and fade, while a job is inactive: `records` has those of all jobs, so that a
// reader of one report does not need the earlier ones.
#pragma once

#include <cstdint>
#include <string>
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
  Tokens redistributed;     // after redistribution of unneeded tokens
  Tokens final;             // after repayment: what the job may use in the next period
  std::int64_t record = 0;  // above 0: it has lent; below: it has borrowed
  Tokens borrowed;          // instant loans of the period, before settling
  Tokens lent;
};

// The same of an active node of a tree of shares; `period.job` is its last value.
struct NodePeriod {
  std::string path;  // values with / between them, top first
  JobPeriod period;
  bool is_job = false;  // a leaf
};

// Tokens that a job has lent (positive) or borrowed (negative), whether it is active or not.
struct JobRecord {
  JobId job;
  std::int64_t record = 0;
};

struct PeriodReport {
  Instant at;                      // the end of the period
  Tokens budget;                   // tokens that were divided
  std::vector<JobPeriod> jobs;     // those that were active
  std::vector<JobRecord> records;  // of all jobs that have one; they sum to 0
  // Of a tree of shares: active nodes above the jobs, parents before their children.
  std::vector<NodePeriod> nodes;
};

}  // namespace weir
