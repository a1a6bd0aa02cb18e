// SPDX-License-Identifier: Apache-2.0
//
// Sizes of jobs as Slurm tells them: `squeue --json` in, job ids as the storage sees them and their
// nodes out. A pattern says what the storage sees, in the codes of Lustre's jobid_name:
//
//   %j   the job's number (SLURM_JOB_ID)      %u   the user's number      %e %h %H %g %p   anything
//   %.Nx the first N bytes of code x          else itself
//
//   "%j" -> 4711         "%j.%u" -> 4711.1000         "job-%j" -> job-4711
//
// An id is cut to 31 bytes, as a client cuts it. A pattern with a code that Slurm cannot know (%e,
// %h, %H, %g, %p) or without %j cannot be mapped, and is refused: give the sizes by prolog then.
//
// Which jobs count: those in state RUNNING, COMPLETING, SUSPENDED or STOPPED. An array's tasks are
// jobs of their own, each with its own number, as SLURM_JOB_ID is theirs. The parts of a
// heterogeneous job have numbers of their own too, and share the id of the first (SLURM_JOB_ID of
// its steps is the leader's), so their nodes are added up under it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"

namespace weir::control {

struct JobNodes {
  std::string job;  // as the storage sees it
  std::uint64_t nodes = 1;

  bool operator==(const JobNodes&) const = default;
};

// EINVAL for text that is not squeue's JSON, and for a pattern that cannot be mapped. Entries
// without a number or nodes are left out. In the order of ids, each once.
Result<std::vector<JobNodes>> parse_squeue(std::string_view json, std::string_view pattern);

// Lines "JOB NODES"; empty ones and those that begin with # are skipped. EINVAL names the line.
Result<std::vector<JobNodes>> parse_nodes(std::string_view text);

}  // namespace weir::control
