// SPDX-License-Identifier: Apache-2.0
#include "weir/control/api.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weir/base/quote.h"
#include "weir/control/api_path.h"
#include "weir/control/json_nlohmann.h"
#include "weir/control/lock_json.h"
#include "weir/control/problem.h"
#include "weir/control/snapshot_json.h"

namespace weir::control {
namespace {

constexpr std::size_t kLocksMax = 100'000;  // maximum of a list

Result<ListQuery> list_query(const HttpRequest& request) {
  ListQuery query;
  query.filter = request.find("filter").value_or("");
  query.sort = request.find("sort").value_or(query.sort);
  if (std::count(kSorts.begin(), kSorts.end(), query.sort) == 0) {
    return fail(std::errc::invalid_argument, "sort", quote(query.sort) + " is not a sort key",
                fmt::format("use one of {}", fmt::join(kSorts, ", ")));
  }
  for (const auto& [key, number] : {std::pair{"limit", &query.limit}, {"offset", &query.offset}}) {
    const auto text = request.find(key);
    if (!text) continue;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
    if (error != std::errc{} || end != text->data() + text->size()) {
      return fail(std::errc::invalid_argument, key, quote(*text) + " is not a whole number",
                  fmt::format("omit it for {}", *number));
    }
  }
  return query;
}

HttpResponse locks_answer(const Snapshot& shot, const std::vector<std::string>& parts) {
  if (parts.size() == 1) return {.body = namespaces_json(shot.locks)};
  const auto found = std::find_if(shot.locks.begin(), shot.locks.end(),
                                  [&](const auto& one) { return one.name == parts[1]; });
  if (found == shot.locks.end()) {
    return error_response(404, "no namespace named " + quote(parts[1]));
  }
  return {.body = namespace_json(*found)};
}

HttpResponse service_answer(const ServiceSnapshot& shot, std::string_view what,
                            const HttpRequest& request) {
  const auto query = list_query(request);
  if (!query && (what == "classes" || what == "jobs")) return error_response(query.error());
  auto body = service_json(shot, what, query.value_or(ListQuery{}));
  if (body) {
    HttpResponse response{.body = std::move(*body)};
    if (what == "classes" || what == "jobs") response.count = count_of(shot, what, *query);
    return response;
  }
  return error_response(404, "a service has no " + quote(what),
                        "use policies, tunables, rules, classes, jobs, ledger, shares or capacity");
}

}  // namespace

HttpResponse answer_lock_list(lock::Console& console, const HttpRequest& request) {
  const auto query = list_query(request);
  if (!query) return error_response(query.error());
  const std::size_t limit = std::min(query->limit, kLocksMax);
  lock::ListOptions options{.filter = std::string(query->filter)};
  std::vector<lock::LockView> locks;
  do {
    options.max = limit - locks.size();
    auto list = console.list(api_parts(request.path)[1], options);
    if (!list) return error_response(list.error());
    std::move(list->locks.begin(), list->locks.end(), std::back_inserter(locks));
    options.from = list->next;
  } while (options.from != 0 && locks.size() < limit);
  return {.body = lock_list_json(locks, options.from == 0)};
}

HttpResponse answer_from(const Snapshot& shot, const HttpRequest& request, std::string_view version,
                         std::string_view generation) {
  const auto parts = api_parts(request.path);
  HttpResponse response;
  if (parts[0] == "status") {
    response.body =
        status_json(shot, version, generation, request.access == Access::kWrite ? "write" : "read");
  } else if (parts[0] == "locks") {
    response = locks_answer(shot, parts);
  } else if (parts.size() == 1) {
    response.body = services_json(shot);
  } else {
    const auto found = std::find_if(shot.services.begin(), shot.services.end(),
                                    [&](const auto& one) { return one.name == parts[1]; });
    if (found == shot.services.end()) {
      return error_response(404, "no service named " + quote(parts[1]));
    }
    response = service_answer(*found, parts.size() == 3 ? parts[2] : "", request);
  }
  if (response.status == 200) {
    response.etag = generation;
    response.time_ns = static_cast<std::uint64_t>(shot.moment.wall_ns);
  }
  return response;
}

std::string params_json(const std::vector<ParamOutcome>& outcomes) {
  Json all = Json::array();
  for (const ParamOutcome& outcome : outcomes) {
    Json one{{"path", outcome.path}, {"file", outcome.slashed}};
    if (outcome.is_writable) one["writable"] = true;
    if (outcome.is_folder) one["folder"] = true;
    if (outcome.error.code == std::errc{}) {
      one["value"] = outcome.value;
      if (!outcome.note.empty()) one["note"] = outcome.note;
    } else {
      one["errno"] = static_cast<int>(outcome.error.code);
      one["error"] = outcome.error.message();
    }
    all.push_back(std::move(one));
  }
  return text_of(all);
}

std::string change_json(std::string_view generation, bool is_durable,
                        const std::vector<ParamOutcome>& outcomes) {
  Json json{{"generation", generation}, {"durable", is_durable}};
  for (const ParamOutcome& outcome : outcomes) {
    if (!outcome.note.empty()) json["notes"].push_back(outcome.note);
  }
  return text_of(json);
}

}  // namespace weir::control
