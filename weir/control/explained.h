// SPDX-License-Identifier: Apache-2.0
//
// What an explanation is about (explain.h): the class, job or rule that a name means, and what a
// snapshot holds of it. A name may be that of a class, of a job, which may have several classes, or
// of a rule, all of whose requests are meant.
//
//   const auto explained = find_class(snapshot, "ost_io", "ior.7");
//
// Functions of values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/classify/attributes.h"
#include "weir/control/snapshot.h"
#include "weir/control/wait_history.h"

namespace weir::control {

// Where the sought object (ClassQuery) was found.
struct Explained {
  std::size_t service = 0;
  // None: only the key of its requests is known, and the rule determines the class.
  const ClassSnapshot* found = nullptr;
  Attributes key = {};
  std::optional<JobId> job = {};  // if a job was asked for
  std::string asked_for = {};  // what the job was chosen for, as the start of a sentence; or none
};
// `service` may be empty: all are searched. A job may have had classes under several rules: the one
// under `rule` is preferred. A rule with several classes is explained by the one that has waited
// longest.
std::optional<Explained> find_class(const Snapshot& shot, std::string_view service,
                                    std::string_view name, std::string_view rule = {});
// The reason why nothing was found: ENODEV under a policy without rules, otherwise ENOENT.
Error not_explained(const Snapshot& shot, std::string_view service, std::string_view name);

// Its job; nullptr: requests of several jobs are meant, or the job is not in the snapshot.
const JobSnapshot* job_of(const ServiceSnapshot& service, const Explained& explained);
// The waits of all its queues. REQUIRES, as all below: a class was found.
WaitSpan span_of(const ServiceSnapshot& service, const Explained& explained,
                 const WaitHistory& history);
// Whether the requests of a wait are among its requests.
bool is_of(const ServiceSnapshot& service, std::size_t at, const Explained& explained);
// The classes that limit its requests, one for each layer at most.
std::vector<const ClassSnapshot*> limits_on(const ServiceSnapshot& service,
                                            const Explained& explained);
// The class whose bucket has the least in it; nullptr: there is none.
const ClassSnapshot* emptiest(const std::vector<const ClassSnapshot*>& limits);
// "requests that match ..."
std::string conditions_of(const ServiceSnapshot& service, std::string_view rule);

}  // namespace weir::control
