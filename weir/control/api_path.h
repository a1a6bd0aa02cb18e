// SPDX-License-Identifier: Apache-2.0
//
// Paths of the HTTP API: the table of all of them with their methods, and their parts.
//
//   allowed_methods("/v1/jobs/ior.1") == "PUT, DELETE"
//   api_parts("/v1/jobs/ior.1") == {"jobs", "ior.1"}
//
// Functions of values; nothing here answers a request. docs/openapi.json describes the same paths.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weir::control {

// "/v1/services/ost_io/rules" split into its parts after "/v1"; none if it does not start with
// "/v1".
std::vector<std::string> api_parts(std::string_view path);

// The methods of a path, as in the header Allow: "GET, HEAD, POST". Empty: there is no such path.
// '*' in the table stands for one part that is not empty; at the end of a path with DELETE it
// stands for any name, because names of jobs, rules and members may contain slashes.
struct ApiRoute {
  std::string_view pattern;
  std::string_view methods;
};
std::span<const ApiRoute> api_routes();
std::string_view allowed_methods(std::string_view path);
// Whether a method is among them.
bool is_allowed(std::string_view method, std::string_view allowed);

// Whether a snapshot answers this path.
bool is_snapshot_path(std::string_view path);
// /v1/services/NAME/history.
bool is_history_path(std::string_view path);
// /v1/locks/NAME/list, which the lock service answers.
bool is_lock_list_path(std::string_view path);

}  // namespace weir::control
