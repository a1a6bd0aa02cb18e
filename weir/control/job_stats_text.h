// SPDX-License-Identifier: Apache-2.0
//
// OpStats as a Lustre server prints obdfilter.<target>.job_stats, byte for byte, so that exporters
// and scripts made for Lustre read a Weir server unchanged. Wall-clock times are worked out from
// one pair of clock readings, since everything inside counts monotonic time.
//
//   print_job_stats(stats, {server.now(), wall_ns});
//
// Also the escaping of names from clients: printable_id() writes characters outside
// [A-Za-z0-9.@_:/-] as \xHH, which is safe in a terminal, in HTML and in a line of metrics, and
// read_id() reads it back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weir/account/op_stats.h"
#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir::control {

// The same moment on both clocks.
struct Moment {
  Instant now;
  std::int64_t wall_ns = 0;  // since 1970

  // The wall-clock time of another instant.
  std::int64_t wall_of(Instant at) const { return wall_ns - (now - at).count(); }
};

std::string print_job_stats(OpStats& stats, const Moment& moment);
// "clear", or one job id, perhaps quoted, with \xHH in it. EINVAL: no such job, or no id.
Result<void> write_job_stats(OpStats& stats, std::string_view text);

// Whole seconds; 0 is never. Half of it is kept, as Lustre does: 5 reads back as 4.
std::string print_cleanup_interval(const OpStats& stats);
Result<void> write_cleanup_interval(OpStats& stats, std::string_view text);
// Whether that would succeed.
Result<void> check_cleanup_interval(std::string_view text);

std::string printable_id(std::string_view id);
// EINVAL for a backslash that begins no \xHH, and for nothing at all.
Result<std::string> read_id(std::string_view text);

}  // namespace weir::control
