// SPDX-License-Identifier: Apache-2.0
//
// The HTTP API as functions from values to values: snapshots and outcomes to responses. Reading
// requests is in change_request.h. control.cc takes the snapshots and applies the changes; nothing
// here uses a socket, a file or a server.
//
// Objects have the same keys everywhere, and `weir --json` prints them as they come. Numbers are
// integers; times are nanoseconds ("_ns") and rates are per second. weir-api(7) lists every path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weir/control/http.h"
#include "weir/control/params.h"
#include "weir/control/snapshot.h"
#include "weir/lock/view.h"

namespace weir::control {

// The answer of a snapshot to a path (is_snapshot_path). 404 names the object that does not exist.
HttpResponse answer_from(const Snapshot& shot, const HttpRequest& request, std::string_view version,
                         std::string_view generation);

// /v1/locks/NAME/list: read from the lock service page by page, up to the limit of the request.
HttpResponse answer_lock_list(lock::Console& console, const HttpRequest& request);

std::string params_json(const std::vector<ParamOutcome>& outcomes);
// The confirmation of a change.
std::string change_json(std::string_view generation, bool is_durable,
                        const std::vector<ParamOutcome>& outcomes);

}  // namespace weir::control
