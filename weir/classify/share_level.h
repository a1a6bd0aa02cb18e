// SPDX-License-Identifier: Apache-2.0
//
// The levels of a tree of shares, and the node of a request in each. A level is a field of the
// request: its value, below the value of the level above it, is a node of the tree.
//
//   parse_share_levels({"projid", "subnet/24", "jobid"})   two levels above the jobs
//   node_name((*levels)[0], attributes)                     "1001"; a missing value is "(none)"
//
// Levels are projid, gid, uid, nodemap, nid, export and subnet/N. The last one is jobid and is not
// returned: shares of jobs alone have no level above them. Names hold no slash, so that a path can
// be written with slashes between them; an address too long for a name ends in its hash.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/classify/attributes.h"

namespace weir {

// One field.
using ShareLevel = FieldSet;

inline constexpr std::size_t kShareLevelsMax = 8;            // with that of the jobs
inline constexpr std::string_view kNoShareValue = "(none)";  // of a request without a value

Result<std::vector<ShareLevel>> parse_share_levels(std::span<const std::string> names);

JobId node_name(const ShareLevel& level, const Attributes& attributes);

// The fields that determine the nodes of a request.
FieldSet fields_of(std::span<const ShareLevel> levels);

}  // namespace weir
