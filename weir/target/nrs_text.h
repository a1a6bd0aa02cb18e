// SPDX-License-Identifier: Apache-2.0
//
// A Target in Lustre's text formats: reads and writes of nrs_policies, nrs_tbf_rule and
// nrs_crrn_quantum, byte for byte, with the errno values of a Lustre server. The tunables of every
// other registered policy are read and written in the same way.
//
//   write nrs_policies             <policy> [reg|hp] [<argument>]      "tbf jobid", "fifo reg"
//   write nrs_tbf_rule             a rule command               "start dd jobid={dd.*} rate=100"
//   write nrs_crrn_quantum         N | reg_quantum:N | hp_quantum:N    1..65535
//   write nrs_<policy>_<tunable>   N | reg_<tunable>:N | hp_<tunable>:N
//
// A write is applied completely or not at all. Intended differences from Lustre: a policy that
// is being drained never makes a write wait or fail, and the state of one head can be read when
// the other runs another policy. One Target is listed as one CPT, since its rates are those of
// the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/target/target.h"

namespace weir {

std::string read_nrs_policies(const Target& target);
// EINVAL: too long, a name or argument too long, or an invalid type of tbf. ENOENT: no such policy.
Result<void> write_nrs_policies(Target& target, std::string_view text, Instant now);

// ENODEV if no head runs tbf.
Result<std::string> read_nrs_tbf_rule(const Target& target);
// A trailing newline is part of the command; see parse_command() and Target::write_rule.
Result<void> write_nrs_tbf_rule(Target& target, std::string_view text, Instant now);

// A tunable of a registered policy (weir/schedule/policy_kinds.h) by its name.
struct TunableName {
  std::string policy;
  std::string tunable;

  // "nrs_crrn_quantum"
  std::string leaf() const { return "nrs_" + policy + "_" + tunable; }
};
// Those of all registered policies, in order of registration.
std::vector<TunableName> nrs_tunables();
// ENODEV if no head runs the policy. ENOENT: there is no such policy or tunable.
Result<std::string> read_nrs_tunable(const Target& target, const TunableName& name);
// EINVAL: not a number, or out of range. ERANGE: beyond 64 bits. ENODEV, ENOENT as above.
Result<void> write_nrs_tunable(Target& target, const TunableName& name, std::string_view text,
                               Instant now);
// Whether that would succeed.
Result<void> check_nrs_tunable(const Target& target, const TunableName& name,
                               std::string_view text);

// The same as an option: "quantum=8" of a policy as written to nrs_policies, which runs. EINVAL: it
// has no such tunable, or the value is not valid.
Result<void> set_tunable(Target& target, std::string_view policy, std::string_view text,
                         Instant now);

}  // namespace weir
