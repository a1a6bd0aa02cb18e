// SPDX-License-Identifier: Apache-2.0
//
// The node of a request in each level of a tree of shares. A level above the jobs is a field of the
// request: its value, below the value of the level above it, is a node of the tree.
//
//   node_name({Field::kProjid}, attributes)     "1001"; a missing value is "(none)"
//
// Levels are projid, gid, uid, nodemap, nid, export and subnet/N. Names hold no slash, so that a
// path can be written with slashes between them; an address too long for a name ends in its hash.
#pragma once

#include <span>
#include <string_view>

#include "weir/base/job_id.h"
#include "weir/classify/attributes.h"

namespace weir {

inline constexpr std::string_view kNoShareValue = "(none)";  // of a request without a value

// REQUIRES: the level is one field.
JobId node_name(FieldSet level, const Attributes& attributes);

// The fields that determine the nodes of a request.
FieldSet fields_of(std::span<const FieldSet> levels);

}  // namespace weir
