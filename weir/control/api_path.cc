// SPDX-License-Identifier: Apache-2.0
#include "weir/control/api_path.h"

#include <algorithm>

namespace weir::control {
namespace {

constexpr std::string_view kRead = "GET, HEAD";

// docs/openapi.json has the same paths and methods; a test compares them.
constexpr ApiRoute kRoutes[] = {{"/metrics", kRead},
                                {"/v1/openapi.json", kRead},
                                {"/v1/status", kRead},
                                {"/v1/events", kRead},
                                {"/v1/explain", kRead},
                                {"/v1/params", "GET, HEAD, POST"},
                                {"/v1/jobs", kRead},
                                {"/v1/jobs/*", "PUT, DELETE"},
                                {"/v1/services", kRead},
                                {"/v1/services/*", kRead},
                                {"/v1/services/*/policies", "GET, HEAD, PUT"},
                                {"/v1/services/*/tunables", "GET, HEAD, PUT"},
                                {"/v1/services/*/rules", "GET, HEAD, POST"},
                                {"/v1/services/*/rules/*", "DELETE"},
                                {"/v1/services/*/classes", kRead},
                                {"/v1/services/*/jobs", kRead},
                                {"/v1/services/*/ledger", kRead},
                                {"/v1/services/*/shares", kRead},
                                {"/v1/services/*/capacity", "GET, HEAD, PUT"},
                                {"/v1/services/*/history", kRead},
                                {"/v1/locks", kRead},
                                {"/v1/locks/*", "GET, HEAD, PUT"},
                                {"/v1/locks/*/list", kRead},
                                {"/v1/locks/*/resources/*", "DELETE"},
                                {"/v1/cluster", kRead},
                                {"/v1/cluster/rules", "GET, HEAD, POST"},
                                {"/v1/cluster/members/*", "DELETE"}};

// One part after the other.
bool matches(std::string_view pattern, std::string_view path) {
  while (!pattern.empty() && !path.empty()) {
    const std::string_view wanted = pattern.substr(1, pattern.find('/', 1) - 1);
    const std::string_view part = path.substr(1, path.find('/', 1) - 1);
    if (path[0] != '/' || part.empty() || (wanted != "*" && wanted != part)) return false;
    pattern.remove_prefix(1 + wanted.size());
    path.remove_prefix(1 + part.size());
  }
  return pattern.empty() && path.empty();
}

// Names of jobs, rules and members may be empty or contain slashes: the end of such a path is one.
bool has_free_name(const ApiRoute& route) {
  return route.methods.find("DELETE") != std::string_view::npos;
}

bool matches_name(std::string_view pattern, std::string_view path) {
  const std::string_view before = pattern.substr(0, pattern.rfind('/'));
  for (std::size_t end = path.find('/', 1); end != std::string_view::npos;
       end = path.find('/', end + 1)) {
    if (matches(before, path.substr(0, end))) return true;
  }
  return false;
}

}  // namespace

std::span<const ApiRoute> api_routes() { return kRoutes; }

std::string_view allowed_methods(std::string_view path) {
  for (const ApiRoute& route : kRoutes) {
    if (matches(route.pattern, path)) return route.methods;
  }
  for (const ApiRoute& route : kRoutes) {
    if (has_free_name(route) && matches_name(route.pattern, path)) return route.methods;
  }
  return {};
}

bool is_allowed(std::string_view method, std::string_view allowed) {
  while (!allowed.empty()) {
    const std::string_view one = allowed.substr(0, allowed.find(','));
    if (one == method) return true;
    allowed.remove_prefix(std::min(one.size() + 2, allowed.size()));
  }
  return false;
}

std::vector<std::string> api_parts(std::string_view path) {
  std::vector<std::string> parts;
  if (!path.starts_with("/v1/")) return parts;
  path.remove_prefix(4);
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

bool is_snapshot_path(std::string_view path) {
  const auto parts = api_parts(path);
  if (!parts.empty() && parts[0] == "locks") return parts.size() <= 2;
  return parts.size() >= 1 && parts.size() <= 3 && (parts[0] == "status" || parts[0] == "services");
}

bool is_history_path(std::string_view path) {
  const auto parts = api_parts(path);
  return parts.size() == 3 && parts[0] == "services" && parts[2] == "history";
}

bool is_lock_list_path(std::string_view path) {
  const auto parts = api_parts(path);
  return parts.size() == 3 && parts[0] == "locks" && parts[2] == "list";
}

}  // namespace weir::control
