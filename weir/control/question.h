// SPDX-License-Identifier: Apache-2.0
//
// What is explained, and for which question: an export, a client or a user is explained by the job
// that waits most of those that it has (explain.h).
//
//   question_of_export()   "export 'a' serves 3 jobs, of which ior.7 waits most: "
//   question_of_client()   "uid 1001 runs one job: "
//
// Called on the loop, since they read Targets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/serve/server.h"

namespace weir::control {

inline constexpr std::string_view kExport = "export=";  // in front of a name

// What is explained, and for which question (Explained::asked_for).
struct Question {
  std::string name;
  std::string service;  // empty: all
  std::string asked_for = {};
};

// The rule of a class and the reason, as returned by RuleList::explain.
std::string reason_of(const Target& target, const Attributes& key);

Error no_export(std::string_view name, std::string_view service);
// About the job that waits most of those that the export has served.
Result<Question> question_of_export(serve::ServedExport& served, Instant now);

// What a name with "client=", "uid=" or "gid=" in front of it asks for.
struct ClientOrUser {
  Field field;
  std::string_view word;
  Attributes key = {};
};
std::optional<ClientOrUser> read_client_or_user(std::string_view name);
// About the job that waits most of those that this client or user has named; none: they have no
// requests.
std::optional<Question> question_of_client(const serve::Server& server, const ClientOrUser& asked,
                                           std::string_view name, std::string_view service);

}  // namespace weir::control
