// SPDX-License-Identifier: Apache-2.0
//
// The registry of policies, by name. Weir's own (fifo, crrn, tbf) are registered from the start; a
// program adds others before it creates the first Gate:
//
//   int main(int argc, char** argv) {
//     if (auto added = weir::add_policy({.name = "edf", ...}); !added) ...
//     return weir::serve_main(argc, argv);
//   }
//
// The first is the fallback of every head (fifo). Not thread-safe: add first, then run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/schedule/policy.h"
#include "weir/schedule/root.h"
#include "weir/schedule/rule_engine.h"

namespace weir {

// A number of a policy that can be changed while it runs: by the parameter nrs_<policy>_<tunable>,
// the API, the configuration file and --tunable.
struct Tunable {
  std::string name;  // letters, digits and '_', at most 15 bytes
  std::uint64_t least = 0;
  std::uint64_t most = UINT64_MAX;
  std::string help = {};
};

// Arguments for creating a policy.
struct PolicySetup {
  const RuleOptions& rules;
  std::uint64_t stamp;  // distinguishes the policies of one Gate
  Root& root;           // of the target; outlives the policy
};

struct PolicyKind {
  // One for each head, regular first; both may share state.
  using Pair = std::array<std::unique_ptr<Policy>, 2>;
  // EINVAL: the argument is not valid.
  using Make = std::function<Result<Pair>(std::string_view argument, const PolicySetup& setup)>;

  std::string name;             // name in commands: letters, digits and '_', at most 15 bytes
  std::string help;             // one line
  bool takes_argument = false;  // false: an argument is only displayed
  bool has_rules = false;       // its policies have an engine(): rules, shares, groups, explain
  std::vector<Tunable> tunables = {};
  Make make = nullptr;
};

// EEXIST: the name is taken, of the policy or of a tunable. EINVAL: not a valid name, no factory,
// or a tunable without a valid value. Then nothing changes.
Result<void> add_policy(PolicyKind kind);

// In order of registration.
const std::vector<std::unique_ptr<const PolicyKind>>& policy_kinds();
const PolicyKind& fallback_policy();
// ENOENT: the error lists the known names and suggests the nearest.
Result<const PolicyKind*> find_policy(std::string_view name);
// ENOENT: the error lists its tunables and suggests the nearest.
Result<const Tunable*> find_tunable(const PolicyKind& kind, std::string_view name);
// The names of policies with rules: "tbf", "tbf or mine".
std::string policies_with_rules();

}  // namespace weir
