// SPDX-License-Identifier: Apache-2.0
//
// The levels of a tree of shares, top first: "projid,uid,jobid" divides the target between
// projects, a project's part between its users, and a user's part between jobs. One table names
// the fields; those of Weir alone never appear in Lustre's type `tbf generic`.
//
//   jobid  uid  gid  projid  nodemap  nid        as in rules
//   export  subnet/N  rule                       Weir's own; N: bits of the network, 1 to 128
//
// Values only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"

namespace weir {

enum class ShareField : std::uint8_t {
  kJobid,
  kUid,
  kGid,
  kProjid,
  kNodemap,
  kNid,
  kExport,
  kSubnet,
  kRule,
};

struct ShareLevel {
  ShareField field = ShareField::kJobid;
  std::uint8_t bits = 0;  // of a subnet

  bool operator==(const ShareLevel&) const = default;
};

inline constexpr std::size_t kShareLevelsMax = 8;

// EINVAL: no levels or too many, an unknown field, or one that is given twice.
Result<std::vector<ShareLevel>> parse_share_levels(std::string_view text);
std::string print_share_levels(const std::vector<ShareLevel>& levels);

}  // namespace weir
