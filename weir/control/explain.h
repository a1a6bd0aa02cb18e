// SPDX-License-Identifier: Apache-2.0
//
// Why the requests of a class wait: the body of GET /v1/explain. First the answer, as a sentence
// with the command that would change it; then the figures that it is based on.
//
//   explained.h      which class, job or rule is meant
//   wait_history.h   how long its requests waited in the last minute, by cause
//   verdict.h        the answer, with entitlement.h
//   explain_words.h  the texts below it
//
// Values; not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "weir/control/explained.h"
#include "weir/control/snapshot.h"
#include "weir/control/verdict.h"
#include "weir/control/wait_history.h"

namespace weir::control {

// `reason` is the result of RuleList::explain; empty: the conditions of its rule are shown. The
// locks of `shot` are used, so they are empty for other services than that of the locks.
std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason);

}  // namespace weir::control
