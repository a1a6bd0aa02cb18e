// SPDX-License-Identifier: Apache-2.0
//
// The answer of an explanation (explain.h): the cause for which requests mostly wait, as a sentence
// with the command that would change it, and how the job stands with its share.
//
//   waits are short -----------> "none", or "device" if that is slow
//   not measured --------------> what the state of buckets and jobs says
//   the largest delay ---------> "limit", "share", "root", "slot" or "order"
//
// Functions of values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weir/control/explained.h"
#include "weir/control/snapshot.h"
#include "weir/control/wait_history.h"
#include "weir/lock/view.h"

namespace weir::control {

// The answer, and the command that would change it; none if no command would help.
struct Verdict {
  // "limit", "share", "root", "slot", "order", "device", "volume" (of locks), "none" or "unknown"
  std::string cause;
  std::string text;
  std::string cure;
  std::string limited_by = {};  // the class whose bucket is empty, if the cause is a limit
};
// `locks`: the namespaces of the lock service, if that is the service.
Verdict verdict_of(const ServiceSnapshot& service, const Explained& explained, const WaitSpan& span,
                   std::span<const lock::NamespaceView> locks = {});
// What the job is entitled to, has now, owes and is owed; sentences.
std::vector<std::string> standing_of(const ServiceSnapshot& service, const JobSnapshot& job,
                                     const Verdict& verdict);

}  // namespace weir::control
