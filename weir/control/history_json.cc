// SPDX-License-Identifier: Apache-2.0
#include "weir/control/history_json.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/control/json_nlohmann.h"

namespace weir::control {
namespace {

using Resolution = UsageHistory::Resolution;
using Order = UsageHistory::Order;

constexpr std::pair<std::string_view, Order> kOrders[] = {
    {"served", Order::kServed}, {"bytes", Order::kBytes}, {"waited_ns", Order::kWait}};

Json steps_json(const std::vector<UsageStep>& steps) {
  Json served = Json::array();
  Json bytes = Json::array();
  Json waited = Json::array();
  for (const UsageStep& one : steps) {
    served.push_back(one.served());
    bytes.push_back(one.bytes());
    waited.push_back(one.waited_us() * 1000);
  }
  return {
      {"served", std::move(served)}, {"bytes", std::move(bytes)}, {"waited_ns", std::move(waited)}};
}

}  // namespace

Result<HistoryQuery> read_history_query(const HttpRequest& request) {
  HistoryQuery query;
  const std::string_view step = request.find("step").value_or("1");
  if (step != "1" && step != "15") {
    return fail(std::errc::invalid_argument, "step", quote(step) + " is not a step of the history",
                "use 1 or 15 (seconds)");
  }
  if (step == "15") query.resolution = Resolution::kQuarters;
  const std::string_view sort = request.find("sort").value_or("served");
  const auto order = std::find_if(std::begin(kOrders), std::end(kOrders),
                                  [&](const auto& one) { return one.first == sort; });
  if (order == std::end(kOrders)) {
    return fail(std::errc::invalid_argument, "sort", quote(sort) + " is not a sort key",
                "use served, bytes or waited_ns");
  }
  query.order = order->second;
  if (const auto text = request.find("limit")) {
    const char* const last = text->data() + text->size();
    const auto [end, error] = std::from_chars(text->data(), last, query.limit);
    if (error != std::errc{} || end != last) {
      return fail(std::errc::invalid_argument, "limit", quote(*text) + " is not a whole number",
                  fmt::format("omit it for {}", HistoryQuery::kClassesDefault));
    }
    query.limit = std::min(query.limit, HistoryQuery::kClassesMax);
  }
  for (const auto& [key, value] : request.query) {
    if (key == "class" && query.names.size() < HistoryQuery::kClassesMax) {
      query.names.push_back(value);
    }
  }
  return query;
}

std::optional<std::string> history_json(const UsageHistory& history, std::string_view service,
                                        const HistoryQuery& query, const Moment& now) {
  const auto names = query.names.empty()
                         ? history.busiest(service, query.resolution, query.order, query.limit)
                         : query.names;
  const auto view = history.view(service, query.resolution, names);
  if (!view) return std::nullopt;
  Json classes = Json::array();
  for (const UsageHistory::Line& line : view->classes) {
    Json one{{"class", line.name}};
    one.update(steps_json(line.steps));
    classes.push_back(std::move(one));
  }
  Json marks = Json::array();
  for (const UsageHistory::Mark& mark : history.marks()) {
    marks.push_back({{"time_ns", now.wall_of(mark.at)}, {"text", mark.text}});
  }
  return text_of({{"service", service},
                  {"step_ns", view->step.count()},
                  {"end_ns", now.wall_of(view->end)},
                  {"total", steps_json(view->total)},
                  {"classes", std::move(classes)},
                  {"marks", std::move(marks)}});
}

}  // namespace weir::control
