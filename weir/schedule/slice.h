// SPDX-License-Identifier: Apache-2.0
//
// The amount of a limit of the cluster that this server may use, for a class of a rule with
// scope=cluster.
//
// Values only: weir/coordinate computes slices, a Target takes them as a command, and the policy
// applies them to the buckets of the class.
#pragma once

#include <optional>
#include <string_view>

#include "weir/base/rate.h"
#include "weir/classify/attributes.h"

namespace weir {

struct Slice {
  std::optional<Rate> ops;  // none: as in the rule, or the minimum rate in a cluster
  std::optional<Rate> bytes;
  bool operator==(const Slice&) const = default;
};
struct ClassSlice {
  std::string_view rule;
  std::optional<Attributes> key;  // of the class; none: all classes without their own slice
  Slice slice;
};

}  // namespace weir
