// SPDX-License-Identifier: Apache-2.0
//
// The node of a request in each level of a tree of shares. A level above the jobs is a field of the
// request: its value, below the value of the level above it, is a node of the tree.
//
//   node_name({Field::kProjid}, attributes)     "1001"; a missing value is "(none)"
//
// Levels are projid, gid, uid, nodemap, nid, export and subnet/N, and the rule of layer 0 that
// matches the request. Names hold no slash, so that a path can be written with slashes between
// them; an address too long for a name ends in its hash.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weir/base/job_id.h"
#include "weir/classify/attributes.h"

namespace weir {

inline constexpr std::string_view kNoShareValue = "(none)";  // of a request without a value

// The rule of a request is none of its fields.
inline constexpr FieldSet kRuleLevel{};

// REQUIRES: the level is one field, or kRuleLevel; `rule` is the name of the rule in layer 0.
JobId node_name(FieldSet level, const Attributes& attributes, std::string_view rule);

// "projid", "subnet/24", "rule", and the reverse.
std::string print_level(FieldSet level);
Parsed<FieldSet> read_level(std::string_view text);

// The fields that determine the nodes of a request.
FieldSet fields_of(std::span<const FieldSet> levels);

}  // namespace weir
