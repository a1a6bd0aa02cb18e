// SPDX-License-Identifier: Apache-2.0
//
// A Target in Lustre's text formats: reads and writes of nrs_policies, nrs_tbf_rule and
// nrs_crrn_quantum, byte for byte, with the errno values of a Lustre server.
//
//   write nrs_policies       <policy> [reg|hp] [<argument>]      "tbf jobid", "fifo reg"
//   write nrs_tbf_rule       a rule command                      "start dd jobid={dd.*} rate=100"
//   write nrs_crrn_quantum   N | reg_quantum:N | hp_quantum:N    1..65535
//
// A write is applied completely or not at all. Intended differences from Lustre: a policy that
// is being drained never makes a write wait or fail, and the state of one head can be read when
// the other runs another policy. One Target is listed as one CPT, since its rates are those of
// the server.
#pragma once

#include <string>
#include <string_view>

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

// ENODEV if no head runs crrn.
Result<std::string> read_nrs_crrn_quantum(const Target& target);
// EINVAL: not a number, or out of range. ERANGE: beyond 64 bits. ENODEV: no named head runs crrn.
Result<void> write_nrs_crrn_quantum(Target& target, std::string_view text, Instant now);
// Whether that would succeed.
Result<void> check_nrs_crrn_quantum(const Target& target, std::string_view text);

}  // namespace weir
