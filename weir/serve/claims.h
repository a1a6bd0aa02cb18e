// SPDX-License-Identifier: Apache-2.0
//
// Parses the claims of a client in the name of the export it opens. NBD has no field for them, but
// every client lets its user choose the name:
//
//   scratch,job=ior.n1            scratch/job=ior.n1            scratch,job=ior.n1,uid=500,gid=100
//
// The text up to the first ',' or '/' is the export. Both separators mean the same, because QEMU's
// option syntax uses the comma. The keys are job, uid, gid and project. Claims are only parsed
// here; client_identity.h decides whether to accept them. Pure: text in, values out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/base/job_id.h"
#include "weir/base/result.h"

namespace weir::serve {

struct Claims {
  std::optional<JobId> job = std::nullopt;  // never empty
  std::optional<std::uint32_t> uid = std::nullopt;
  std::optional<std::uint32_t> gid = std::nullopt;
  std::optional<std::uint32_t> project = std::nullopt;

  bool any() const { return job || uid || gid || project; }
  bool operator==(const Claims&) const = default;
};

struct AskedName {
  std::string_view name;  // of the export; points into the text
  Claims claims;

  bool operator==(const AskedName&) const = default;
};

// EINVAL for an unknown key, a repeated key, and an invalid value. A job of more than 31 bytes is
// refused: truncated, it could be the job of another client.
Result<AskedName> parse_asked_name(std::string_view text);

}  // namespace weir::serve
