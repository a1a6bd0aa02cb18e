// SPDX-License-Identifier: Apache-2.0
//
// The policies there are, by name. Those of Weir (fifo, crrn, tbf) are there from the beginning; a
// program adds its own before it makes the first Gate:
//
//   int main(int argc, char** argv) {
//     if (auto added = weir::add_policy({.name = "edf", ...}); !added) ...
//     return weir::serve_main(argc, argv);
//   }
//
// The first is what every head falls back on (fifo). Not for several threads: add first, then run.
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
#include "weir/schedule/rule_engine.h"

namespace weir {

// A number of a policy that can be changed while it runs.
struct Tunable {
  std::string name;
  std::uint64_t least = 0;
  std::uint64_t most = UINT64_MAX;
  std::string help;
};

// What a policy may need to know when it is made.
struct PolicySetup {
  const RuleOptions& rules;
  std::uint64_t stamp;  // tells policies of one Gate apart
};

struct PolicyKind {
  // One for each head, regular first; a policy may have state that is common to both.
  using Pair = std::array<std::unique_ptr<Policy>, 2>;
  // EINVAL: it does not take this argument.
  using Make = std::function<Result<Pair>(std::string_view argument, const PolicySetup& setup)>;

  std::string name;             // as in commands: letters, digits and '_', at most 15 bytes
  std::string help;             // one line
  bool takes_argument = false;  // if not, it is only shown
  bool has_rules = false;       // its policies have an engine(): rules, shares, groups, explain
  std::vector<Tunable> tunables = {};
  Make make = nullptr;
};

// EEXIST: there is one of this name. EINVAL: no name that a command could use, or nothing to make
// it with. Then nothing has changed.
Result<void> add_policy(PolicyKind kind);

// In the order they were added.
const std::vector<std::unique_ptr<const PolicyKind>>& policy_kinds();
const PolicyKind& fallback_policy();
// ENOENT: the error names those that there are, and the nearest.
Result<const PolicyKind*> find_policy(std::string_view name);
// The names of those with rules: "tbf", "tbf or mine".
std::string policies_with_rules();

}  // namespace weir
