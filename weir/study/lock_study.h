// SPDX-License-Identifier: Apache-2.0
//
// A scenario of the lock service that was run for several appetites under several policies, and its
// results as files:
//
//   result.json   per appetite and policy: locks granted relative to the limit, messages, hits, how
//                 far each client is from its share
//   locks.csv     per second: granted, volume, grants and cancels
//   clients.csv   per client: its rate and the locks it held
//   report.html   a self-contained page with the figures
//
// The same study gives the same bytes. All except write_lock_study() are plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/lock_world.h"

namespace weir::study {

struct LockStudy {
  sim::LockScenario scenario;
  std::uint64_t seed = 1;
  std::vector<sim::LockOutcome> outcomes;  // by appetite, then by policy
};

// For a terminal: a line for each run.
std::string lock_table_text(const LockStudy& study);
std::string lock_result_json(const LockStudy& study);
std::string locks_csv(const LockStudy& study);
std::string lock_clients_csv(const LockStudy& study);
std::string lock_report_html(const LockStudy& study);

// Writes all files to a folder, which is created if it does not exist.
Result<void> write_lock_study(const LockStudy& study, const std::string& folder);

}  // namespace weir::study
