// SPDX-License-Identifier: Apache-2.0
//
// Parsers of the files of a Lustre server, in every layout of releases from 2.12 on. Plain
// functions of text; nothing is opened here.
//
//   job_stats             entries of jobs: requests and bytes so far, and since when
//   stats, md_stats       the same for the whole OST or MDT, and the time that requests took
//   nrs_policies          the policy and its argument on each head, and how many requests wait
//   nrs_tbf_rule          the rules of every CPT of both heads
//   cpu_partition_table   the number of CPTs
//
// Files change while they are read: an entry at the end of job_stats may be truncated; it is then
// ignored and reported. Ids are arbitrary bytes; they are unescaped. Unexpected text is EINVAL, so
// that a wrong path is not mistaken for an idle server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"

namespace weir::lustre {

// What the counters of a target are.
enum class Counted : std::uint8_t {
  kBulk,        // of an OST: bulk requests, read and written
  kOperations,  // of an MDT: operations
};

// Operations of an MDT. Its other counters (samedir_rename, rename_trylocks, read_bytes, ...) count
// the same requests again.
inline constexpr std::string_view kOperations[] = {
    "open",   "close",   "mknod",   "link",     "unlink",    "mkdir",   "rmdir",
    "rename", "getattr", "setattr", "getxattr", "setxattr",  "statfs",  "sync",
    "read",   "write",   "punch",   "migrate",  "fallocate", "readpage"};
inline constexpr std::size_t kOperationCount = std::size(kOperations);
// The place of an operation in kOperations; kOperationCount if there is none of this name.
constexpr std::size_t operation_of(std::string_view name) {
  std::size_t at = 0;
  while (at < kOperationCount && kOperations[at] != name) ++at;
  return at;
}

struct JobCounters {
  JobId job;
  std::uint64_t rpcs = 0;                      // bulk requests, read and written
  std::uint64_t bytes = 0;                     // of both
  std::vector<std::uint64_t> operations = {};  // of an MDT: as kOperations
  std::optional<std::uint64_t> since_ns;       // start_time, where the release writes it
  std::optional<std::uint64_t> update_ns;      // snapshot_time: of the last request
};

struct JobStatsText {
  std::vector<JobCounters> jobs;  // in the order of the file
  bool is_cut = false;            // an entry was truncated
};
Result<JobStatsText> parse_job_stats(std::string_view text, Counted counted = Counted::kBulk);

// An id as in job_stats: plain, or quoted with \xHH. EINVAL for an invalid escape.
Result<std::string> parse_job_id(std::string_view text);

// Requests of one kind.
struct RequestTotal {
  std::uint64_t samples = 0;
  std::uint64_t usecs = 0;  // that they took; 0 in releases that do not measure it

  bool operator==(const RequestTotal&) const = default;
};
// Bulk requests of an OST (one total), or operations of an MDT (as kOperations). EINVAL if it has
// no snapshot_time.
Result<std::vector<RequestTotal>> parse_stats(std::string_view text,
                                              Counted counted = Counted::kBulk);

struct Policy {
  std::string name;
  std::string argument;  // the type of tbf; empty: generic, or none
  std::string state;
  bool is_fallback = false;
  std::uint64_t queued = 0;
  std::uint64_t active = 0;
};
struct Policies {
  std::vector<Policy> regular;
  std::vector<Policy> high;
  bool has_high = false;

  // The running tbf of the regular head, or nullptr.
  const Policy* tbf() const;
  // Requests waiting in all policies of both heads.
  std::uint64_t queued() const;
  // Requests in service of all policies of the regular head.
  std::uint64_t active() const;
};
Result<Policies> parse_policies(std::string_view text);

struct RuleLine {
  std::string name;
  std::string conds;  // "jobid={a}"; "{a}" as written by types of one field up to 2.17.0
  std::uint32_t rate = 0;
  std::uint64_t refs = 0;

  bool operator==(const RuleLine&) const = default;
};
struct RuleTable {
  struct Cpt {
    std::uint32_t number = 0;
    std::vector<RuleLine> rules;
  };
  std::vector<Cpt> regular;
  std::vector<Cpt> high;
  bool has_high = false;
};
Result<RuleTable> parse_rules(std::string_view text);

// The number; at least 1.
Result<std::uint32_t> parse_partitions(std::string_view text);

}  // namespace weir::lustre
