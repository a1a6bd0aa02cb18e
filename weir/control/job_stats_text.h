// SPDX-License-Identifier: Apache-2.0
//
// Prints OpStats in the format of obdfilter.<target>.job_stats on a Lustre server, byte for byte,
// so that exporters and scripts for Lustre work with a Weir server unchanged. Wall-clock times are
// computed from one pair of clock readings, since all internal times are monotonic.
//
//   print_job_stats(stats, {server.now(), wall_ns});
//
// Also escapes names from clients: printable_id() writes characters outside [A-Za-z0-9.@_:/-] as
// \xHH, which is safe in a terminal, in HTML and in a line of metrics; read_id() reverses it.
#pragma once

#include <cstddef>
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
// "clear", or one job id, optionally quoted, with \xHH escapes. EINVAL: no such job, or not an id.
Result<void> write_job_stats(OpStats& stats, std::string_view text);

// Whole seconds; 0: never. Rounded to half of it as on Lustre: 5 reads back as 4.
std::string print_cleanup_interval(const OpStats& stats);
Result<void> write_cleanup_interval(OpStats& stats, std::string_view text);
// Whether that would succeed.
Result<void> check_cleanup_interval(std::string_view text);

// 2^bucket bytes: "512", "4K", "1M".
std::string size_bound(std::size_t bucket);

std::string printable_id(std::string_view id);
// EINVAL for a backslash that does not start \xHH, and for an empty text.
Result<std::string> read_id(std::string_view text);

}  // namespace weir::control
