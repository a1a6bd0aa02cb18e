// SPDX-License-Identifier: Apache-2.0
//
// The audit log: one line for every change that an administrator or a program makes, with who,
// what, the state before and after, and the generation.
//
//   audit: change who="uid 0 pid 4711" what="change dd rate=200" on="ost.OSS.ost_io.nrs_tbf_rule"
//     before="jobid={dd.*} rate=100" after="jobid={dd.*} rate=200" generation=18f2-7 result=ok
//
// Keys are always the same and in this order; values are quoted, with every byte that could end a
// line or act on a terminal escaped. weir serve adds lines of its own for start, reload and stop.
// The journal of systemd gets the values as fields too: WEIR_WHO, WEIR_WHAT and so on.
#pragma once

#include <string>

#include "weir/control/change.h"
#include "weir/serve/server.h"

namespace weir::control {

struct AuditEntry {
  std::string who;
  std::string what;
  std::string on;
  std::string before;
  std::string after;
  std::string generation;
  std::string error;  // empty: it was made
};

std::string audit_line(const AuditEntry& entry);
// Logs it.
void audit(const AuditEntry& entry);
// The entry of a change that was made or refused.
AuditEntry audit_entry(const Change& change);

// The state that a change concerns, in few words: a rule, a policy, a value, a number of nodes.
// REQUIRES: on the loop.
std::string state_for(serve::Server& server, const Change& change);

}  // namespace weir::control
