// SPDX-License-Identifier: Apache-2.0
//
// The levels of a tree of shares, and the node of a request in each. A level is a field of the
// request: its value, below the value of the level above it, is a node of the tree.
//
//   parse_share_levels({"projid", "subnet/24", "jobid"})   two levels above the jobs
//   levels[0].value_of(attributes)                          "1001"; a missing value is "(none)"
//
// The last level is always jobid, and need not be stored: parse_share_levels() returns the levels
// above it, none for shares of jobs alone. Values hold no slash, so that a path can be written with
// slashes between them; an address too long for a value ends in its hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/classify/attributes.h"

namespace weir {

struct ShareLevel {
  static constexpr std::string_view kNone = "(none)";  // of a request without a value
  static constexpr std::size_t kLevelsMax = 8;         // with that of the jobs

  JobId value_of(const Attributes& attributes) const;
  // As in the configuration.
  std::string name() const;

  Field field = Field::kUid;
  // Of a network of clients (subnet/N): the number of bits; 0: not a subnet.
  std::uint8_t subnet_bits = 0;

  bool operator==(const ShareLevel&) const = default;
};

Result<std::vector<ShareLevel>> parse_share_levels(std::span<const std::string> names);

// The fields that determine the nodes of a request.
FieldSet fields_of(std::span<const ShareLevel> levels);

}  // namespace weir
