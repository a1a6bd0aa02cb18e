// SPDX-License-Identifier: Apache-2.0
//
// The history of a service as JSON: the body of GET /v1/services/NAME/history.
//
//   ?step=15&sort=waited_ns&limit=10        the most delayed classes, two hours
//   ?class=default/dd.0&class=...           these classes
//
// Bounded by the number of classes in the query. Functions of values; weir-api(7) describes the
// keys.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/account/usage_history.h"
#include "weir/base/result.h"
#include "weir/control/http.h"
#include "weir/control/job_stats_text.h"

namespace weir::control {

struct HistoryQuery {
  static constexpr std::size_t kClassesDefault = 10;
  static constexpr std::size_t kClassesMax = 100;

  UsageHistory::Resolution resolution = UsageHistory::Resolution::kSeconds;
  UsageHistory::Order order = UsageHistory::Order::kServed;
  std::size_t limit = kClassesDefault;
  std::vector<std::string> names = {};  // none: the busiest
};
// EINVAL: not a step, sort key or number.
Result<HistoryQuery> read_history_query(const HttpRequest& request);

// `now` is that of the clock of the history. nullopt: no such service.
std::optional<std::string> history_json(const UsageHistory& history, std::string_view service,
                                        const HistoryQuery& query, const Moment& now);

}  // namespace weir::control
