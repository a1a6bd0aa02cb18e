// SPDX-License-Identifier: Apache-2.0
//
// Snapshots as JSON: the bodies of GET /v1/status and /v1/services/..., and the events of the live
// page.
//
// Lists are bounded by their query, and events have no classes: the size of a response does not
// grow with the number of clients. Functions of values; weir-api(7) describes every key.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "weir/control/snapshot.h"

namespace weir::control {

// Sums since a class was created, its name, and the same sums of the last second or two.
inline constexpr std::array<std::string_view, 7> kSorts = {
    "waited_ns", "served", "bytes", "class", "recent_waited_ns", "recent_served", "recent_bytes"};

// Which entries of a list are wanted.
struct ListQuery {
  static constexpr std::size_t kLimitDefault = 1000;

  std::size_t limit = kLimitDefault;
  std::size_t offset = 0;  // entries to omit
  std::string_view sort = kSorts[0];
  std::string_view filter;

  bool wants(std::string_view name) const { return name.find(filter) != std::string_view::npos; }
};

// `access` is that of the reader: "read" or "write".
std::string status_json(const Snapshot& shot, std::string_view version, std::string_view generation,
                        std::string_view access);
std::string services_json(const Snapshot& shot);
// /v1/services/NAME/WHAT; an empty `what` is the service itself. nullopt: no such part.
std::optional<std::string> service_json(const ServiceSnapshot& shot, std::string_view what,
                                        const ListQuery& query);
// Number of classes or jobs that the query selects, on all of its pages.
std::size_t count_of(const ServiceSnapshot& shot, std::string_view what, const ListQuery& query);

// One event of the page's stream: the services with their rules, and the lock service.
std::string live_event(const Snapshot& shot, std::string_view generation);

}  // namespace weir::control
