// SPDX-License-Identifier: Apache-2.0
//
// HTTP requests that change something, as values: paths and bodies to changes.
//
//   POST /v1/services/ost_io/rules {"command": "stop dd"}
//     -> Change on ost.OSS.ost_io.nrs_tbf_rule
//
// Nothing is applied here: ChangeQueue tries, journals and applies the changes. Unknown keys are
// refused, so that a misspelt one is not ignored. weir-api(7) lists every path.
#pragma once

#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/control/change.h"
#include "weir/control/http.h"

namespace weir::control {

struct ChangeRequest {
  std::vector<Change> changes = {};  // each is applied and answered separately
  bool persists = true;              // in the journal
  bool applies = true;               // false: only changes the journal
  bool is_params = false;            // the response has the format of lctl
  bool is_dry_run = false;           // a rule command that is only tried
  std::string generation = {};       // expected by the body; empty: any
  std::string who = {};              // for the audit log
};
// EINVAL: not JSON, wrong types, unknown keys; ENOENT: no such path; ENOTSUP: no such method for
// the path.
Result<ChangeRequest> read_change(const HttpRequest& request);

struct ClusterChange {
  std::string service;
  RuleChange change;
};
// EINVAL: not JSON, wrong types, unknown keys, not a rule command.
Result<ClusterChange> read_cluster_change(const HttpRequest& request);

}  // namespace weir::control
