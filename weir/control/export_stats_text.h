// SPDX-License-Identifier: Apache-2.0
//
// Prints all operations on an export in the formats of obdfilter.<target>.stats and .brw_stats on a
// Lustre server, so that exporters and scripts for Lustre work with a Weir server unchanged.
//
//   print_export_stats(stats.total(), {server.now(), wall_ns});
//
// Counters without operations are left out, as on Lustre. Of the histograms in brw_stats, those of
// sizes have values; a Weir server has no pages that are discontiguous, and counts no fragments, so
// the others have their titles only.
#pragma once

#include <string>

#include "weir/account/op_stats.h"
#include "weir/control/job_stats_text.h"

namespace weir::control {

std::string print_export_stats(const OpStats::Operations& total, const Moment& moment);
std::string print_brw_stats(const OpStats::Operations& total, const Moment& moment);

}  // namespace weir::control
