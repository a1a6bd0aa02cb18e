// SPDX-License-Identifier: Apache-2.0
//
// Saves lending records across restarts of a server. They are copied out of the loop as values,
// written each second and at shutdown, and read before the first period.
//
//   service NAME period written_off half_life fade_period fade_carry carry carry_of
//   account JOB record remainder allotted last_active ...      (then a line "end")
//
// Each line has a checksum as in the journal (journal.h). An incomplete file is rejected, and all
// records start at 0: records that do not sum to 0 would be worse than none.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/adapt/controller.h"
#include "weir/base/result.h"
#include "weir/serve/server.h"

namespace weir::control {

using Records = std::vector<std::pair<std::string, Controller::State>>;  // by service

// REQUIRES: on the loop, or while it does not run.
Records records_of(const serve::Server& server);
std::string print_records(const Records& records);
// EILSEQ: damaged.
Result<Records> parse_records(std::string_view text);
// A missing file is not an error; services that no longer exist are ignored.
Result<void> restore_records(serve::Server& server, const std::string& path);

}  // namespace weir::control
