// SPDX-License-Identifier: Apache-2.0
//
// Which job a recorded request belongs to. The first rule that matches decides; without one, the
// request belongs to a job named after one of its fields:
//
//   JOB: FIELD=PATTERN ...      all must match; * stands for any characters
//   -: FIELD=PATTERN ...        requests that are left out
//
//   database: comm=postgres* op=write
//   -: dev=253,0
//
// A name is changed where it could not be the name of a job: other characters become _, and it ends
// after 31. A scenario has at most sim::kJobsMax jobs; requests that would make more are in one job
// for all of them. seal() ends the first reading of the files, after which no job is added.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/scenario.h"
#include "weir/study/workload_line.h"

namespace weir::study {

struct JobRule {
  struct Condition {
    std::optional<WorkloadField> field;  // none: the operation
    std::string pattern;
  };
  std::string job;  // empty: leave the request out
  std::vector<Condition> conditions;

  // EINVAL, with the word that is wrong.
  static Result<JobRule> parse(std::string_view text);
  bool matches(const WorkloadRequest& request) const;
};

// `by` of a map, for jobs that are named by rules only.
inline constexpr std::string_view kByRules = "rules";

class JobMap {
 public:
  static constexpr std::size_t kRulesMax = 64;
  // The job of requests that would need more than sim::kJobsMax jobs.
  static constexpr std::string_view kOthers = "others";

  struct Options {
    std::vector<JobRule> rules;
    std::optional<WorkloadField> by = std::nullopt;  // none: the usual one of the format
    bool by_rules_only = false;
  };

  // The jobs of the scenario are known from the start.
  JobMap(Options options, std::vector<sim::JobSpec> jobs);

  struct Found {
    std::uint32_t job = 0;
    std::optional<Skipped> skipped = std::nullopt;
    bool is_overflow = false;
    bool is_unknown = false;  // a new job after seal(): the file has changed
  };
  Found find(const WorkloadRequest& request, WorkloadFormat format);

  void seal() { is_sealed_ = true; }
  const std::vector<sim::JobSpec>& jobs() const { return jobs_; }
  const Options& options() const { return options_; }

 private:
  Found find_named(std::string_view name);

  Options options_;
  std::vector<sim::JobSpec> jobs_;
  std::map<std::string, std::uint32_t, std::less<>> by_text_;  // as in the file
  std::map<std::string, std::uint32_t, std::less<>> by_name_;
  std::optional<std::uint32_t> overflow_;
  bool is_sealed_ = false;
};

}  // namespace weir::study
