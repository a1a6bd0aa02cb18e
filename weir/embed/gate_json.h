// SPDX-License-Identifier: Apache-2.0
//
// The state of a Target as one JSON object, for weir_gate_snapshot(). Keys that weir-api(7) has too
// have the same meaning; docs/embedding.md lists all of them.
//
//   {"policy": "tbf nid", "queued": 3, "running": 1, ..., "rules": [], "classes": [], "jobs": []}
//
// Lists are as long as the Target's own, which are bounded. Bytes of names that are not UTF-8 are
// replaced. Reads only.
#pragma once

#include <string>

#include "weir/base/time.h"
#include "weir/target/target.h"

namespace weir::embed {

std::string gate_json(const Target& target, Instant now);

}  // namespace weir::embed
