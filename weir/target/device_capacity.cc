// SPDX-License-Identifier: Apache-2.0
#include "weir/target/device_capacity.h"

#include <string>

namespace weir {

std::string_view unit_of(const Cost& cost) {
  switch (cost.kind()) {
    case Cost::Kind::kBytes:
      return "bytes";
    case Cost::Kind::kAffine:
      return "tokens";
    case Cost::Kind::kOp:
      break;
  }
  return "operations";
}

Result<void> Capacity::check_unit(const Cost& cost) const {
  const bool counts_bytes = cost.kind() == Cost::Kind::kBytes;
  if (kind == Kind::kAuto || (kind == Kind::kBytes) == counts_bytes) return {};
  const std::string in_force(unit_of(cost));
  return fail(std::errc::invalid_argument, "capacity",
              "is in " + std::string(counts_bytes ? "operations" : "bytes") +
                  " per second, but the service counts " + in_force,
              "give " + in_force + " per second, such as " + (counts_bytes ? "100MB/s" : "4000") +
                  "; to change the unit, set --capacity or cost= and restart the server");
}

}  // namespace weir
