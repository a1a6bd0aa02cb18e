// SPDX-License-Identifier: Apache-2.0
//
// Saves lending records across restarts of a server. They are copied out of the loop as values,
// written each second and at shutdown, and read before the first period.
//
//   service NAME period written_off half_life fade_period fade_carry carry carry_of
//   account JOB record remainder allotted last_active ...      (then a line "end")
//
// In a tree of shares records are those of children under each parent:
//
//   tree LEVELS                           after the line of the service
//   node PATH period written_off ...      "-" is the root; then the accounts of its children
//
// They are restored only below the same levels. Each line has a checksum as in the journal
// (journal.h). An incomplete file is rejected, and all records start at 0: records that do not sum
// to 0 would be worse than none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weir/adapt/controller.h"
#include "weir/base/result.h"
#include "weir/serve/server.h"

namespace weir::control {

struct ServiceRecords {
  std::string service;
  std::string levels;  // of its tree of shares; empty: jobs alone
  Controller::State state;
};
using Records = std::vector<ServiceRecords>;

// REQUIRES: on the loop, or while it does not run.
Records records_of(const serve::Server& server);
std::string print_records(const Records& records);
// EILSEQ: damaged.
Result<Records> parse_records(std::string_view text);
// A missing file is not an error; services that no longer exist are ignored, and records of other
// levels are reported in the log.
Result<void> restore_records(serve::Server& server, const std::string& path);

}  // namespace weir::control
