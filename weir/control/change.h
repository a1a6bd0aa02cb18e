// SPDX-License-Identifier: Apache-2.0
//
// A change that an administrator can make while a server runs, as one value: it is applied on the
// loop, and written to the journal as one line of JSON, from which the next start reads it.
//
//   {"param":"ost.OSS.ost_io.nrs_tbf_rule","value":"start dd jobid={dd.*} rate=100"}
//   {"param":"ost.OSS.ost_io.nrs_policies","value":"tbf nid"}
//   {"job":"ior.17","nodes":64}           nodes 0: remove the setting
//   {"service":"ost_io","capacity":"4000"}
//   {"forget":"ost.OSS.ost_io.nrs_tbf_rule","value":"start ..."}   only in the journal (-P -d)
//
// effective() reduces the records of a journal to those with an effect: forgotten records, rules
// that were started and stopped again, and limits and values that were changed again are omitted.
// Policies and values are first, then the rules, which outlive policies (weir/serve/kept_rules.h).
// Applying the result gives the same rules as applying all records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/rule_spec.h"
#include "weir/control/job_stats_text.h"
#include "weir/serve/server.h"

namespace weir::control {

struct Change {
  enum class Kind : std::uint8_t { kParam, kJob, kCapacity, kForget };
  Kind kind = Kind::kParam;
  std::string target = {};  // a path, a job (its bytes), or a service
  std::optional<std::string> value = {};
  std::uint64_t nodes = 0;
  std::optional<RuleOrText> rule = {};  // instead of a value if the target is a path of rules

  bool operator==(const Change&) const = default;
};

// A value written to a parameter, or (kForget) removed from the journal. Rule commands are read
// here, once.
Change param_change(Change::Kind kind, std::string path, std::optional<std::string> value,
                    std::size_t rule_size_max = kCommandMax);
Change rule_change(std::string_view service, RuleChange change);
// The value, or the text of the rule; empty if there is none.
std::string value_text(const Change& change);

std::string print_change(const Change& change);
Result<Change> parse_change(std::string_view line);
// Invalid records are omitted and reported in `mistakes`.
std::vector<Change> effective(const std::vector<std::string>& records,
                              std::vector<std::string>& mistakes);
// The same as records, to shorten a journal. Returns all of them if one is not valid, so that an
// administrator can see it first.
std::vector<std::string> effective_records(const std::vector<std::string>& records);

// For sizes and capacities: checks whether apply() would succeed, and applies. REQUIRES: on the
// loop, or before it runs. ENOENT: no such service.
Result<void> check(serve::Server& server, const Change& change);
Result<void> apply(serve::Server& server, const Change& change);

// EPERM for rules of the cluster, which are the same on all servers and cannot be changed on one.
// REQUIRES: on the loop.
Result<void> check_own(const serve::Server& server, const Change& change);

bool is_rule(const Change& change);
bool is_policy(const Change& change);

// The parameter for the rule commands, the policies, or a tunable, of a service.
std::string rule_path(std::string_view service);
std::string policy_path(std::string_view service);
std::string tunable_path(std::string_view service, std::string_view policy,
                         std::string_view tunable);

}  // namespace weir::control
