// SPDX-License-Identifier: Apache-2.0
//
// The levels of a tree of shares that a Target can have. Text has all levels, the last of which is
// the job; a Target has the fields of those above it.
//
//   parse_tree_levels("projid,uid,jobid")     {projid}, {uid}
//
// Values only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/attributes.h"

namespace weir {

// EINVAL: an unknown field or one that is given twice, too many levels, or the last one is not the
// job, or another one is.
Result<std::vector<FieldSet>> parse_tree_levels(std::string_view text);
// All levels, with the job.
std::string print_tree_levels(const std::vector<FieldSet>& levels);

// What a node of the level is called: "project", "uid", "client".
std::string_view level_word(FieldSet level);

}  // namespace weir
