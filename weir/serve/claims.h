// SPDX-License-Identifier: Apache-2.0
//
// What a client states about itself in the name of the export it opens. NBD has no field for it,
// but every client lets its user choose the name:
//
//   scratch,job=ior.n1            scratch/job=ior.n1            scratch,job=ior.n1,uid=500,gid=100
//
// The part up to the first ',' or '/' is the export. Both separators mean the same: QEMU's own
// option syntax takes the comma for itself. The keys are job, uid, gid and project. Claims are only
// parsed here; client_identity.h decides whether to accept them. Pure: text in, values out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/base/job_id.h"
#include "weir/base/result.h"

namespace weir::serve {

struct Claims {
  std::optional<JobId> job = std::nullopt;  // never an empty one
  std::optional<std::uint32_t> uid = std::nullopt;
  std::optional<std::uint32_t> gid = std::nullopt;
  std::optional<std::uint32_t> project = std::nullopt;

  bool any() const { return job || uid || gid || project; }
  bool operator==(const Claims&) const = default;
};

struct AskedName {
  std::string_view name;  // of the export; a part of the text
  Claims claims;

  bool operator==(const AskedName&) const = default;
};

// EINVAL for a key there is none of, one given twice, and a value that is none. A job of more than
// 31 bytes is refused: cut, it could be somebody else's.
Result<AskedName> parse_asked_name(std::string_view text);

}  // namespace weir::serve
