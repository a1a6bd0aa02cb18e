// SPDX-License-Identifier: Apache-2.0
//
// The HTTP API as functions from values to values: snapshots to JSON, paths to requests.
// control.cc takes the snapshots and applies the changes; nothing here uses a socket, a file or a
// server.
//
// Objects have the same keys everywhere, and `weir --json` prints them as they come. Numbers are
// integers; times are nanoseconds ("_ns") and rates are per second. weir-api(7) lists every path.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/control/change.h"
#include "weir/control/http.h"
#include "weir/control/params.h"
#include "weir/control/snapshot.h"
#include "weir/serve/cluster_port.h"

namespace weir::control {

// {"error":..., "where":..., "hint":..., "errno":...} with the HTTP status for the errno.
HttpResponse error_response(const Error& error);
HttpResponse error_response(unsigned status, std::string_view what, std::string_view hint = {});

// ---- reading ----

// Whether a snapshot answers this path, and the answer. 404 names the object that does not exist.
bool is_snapshot_path(std::string_view path);
HttpResponse answer_from(const Snapshot& shot, const HttpRequest& request, std::string_view version,
                         std::string_view generation);

// /v1/locks/NAME/list: read from the lock service page by page, up to the limit of the request.
bool is_lock_list_path(std::string_view path);
HttpResponse answer_lock_list(lock::Console& console, const HttpRequest& request);

// One event of the page's stream: the busiest classes, the sums of the others, and the
// lock service.
std::string live_event(const Snapshot& shot, std::string_view generation);

std::string params_json(const std::vector<ParamOutcome>& outcomes);
// The confirmation of a change.
std::string change_json(std::string_view generation, bool is_durable,
                        const std::vector<ParamOutcome>& outcomes);

// ---- the cluster ----

std::string cluster_json(const serve::ClusterStatus& status);
std::string cluster_rules_json(const std::vector<serve::ClusterRule>& rules);

struct ClusterChange {
  std::string service;
  RuleChange change;
};
// EINVAL: not JSON, wrong types, unknown keys, not a rule command.
Result<ClusterChange> read_cluster_change(const HttpRequest& request);

// ---- explaining ----

// Samples of earlier waits, to compute those of the last minute.
struct WaitHistory {
  struct OfService {
    Instant at{};  // of the clock of its Target
    std::vector<WaitView> waits = {};
  };
  using Sample = std::vector<OfService>;
  static constexpr std::size_t kSamplesMax = 13;
  static constexpr Nanoseconds kWindow = std::chrono::seconds{60};

  void add(Sample sample);
  // The delays of this queue since up to a minute ago, and the time since when.
  DelaySums since(std::size_t service, const WaitView& now, Instant at, Instant& from) const;

  std::deque<Sample> samples;
};

// Where the sought object (ClassQuery) was found.
struct Explained {
  std::size_t service = 0;
  const ClassSnapshot* found = nullptr;
};
// A job may have had classes under several rules: the one under `rule` is preferred.
std::optional<Explained> find_class(const Snapshot& shot, std::string_view service,
                                    std::string_view name, std::string_view rule = {});
// `reason` is the result of RuleList::explain.
std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason);

// ---- changing ----

struct ChangeRequest {
  std::vector<Change> changes = {};  // each is applied and answered separately
  bool persists = true;              // in the journal
  bool applies = true;               // false: only changes the journal
  bool is_params = false;            // the response has the format of lctl
};
// EINVAL: not JSON, wrong types, unknown keys; ENOENT: no such path; ENOTSUP: no such method for
// the path.
Result<ChangeRequest> read_change(const HttpRequest& request);

}  // namespace weir::control
