// SPDX-License-Identifier: Apache-2.0
//
// Plans the reload of a configuration file (SIGHUP). The file is compared with its last applied
// version, not with the running state: so only edits have an effect, and changes made by an
// administrator since then remain. FileFollower applies the plan.
//
//   ServeReload plan = plan_reload(applied, read_now);
//   plan.services, plan.shapes, plan.limits, plan.jobs     to be applied at once
//   plan.changes                              a line each, for the log
//   plan.restart                              keys that take effect at the next start only
//   applied = reached(applied, plan, read_now)              for the next time
//
// At once: rules, capacities (to `auto` and back as well), shapes of stores that are opened as
// shaped ones, limits, jobs. Rules become commands that turn the old list into the
// new one: a rule of which only limits differ is changed, and its classes keep their balances; from
// the first other difference on rules are stopped and started again, so that the order is that of
// the file. Rules that the file never had are left alone. Pure: values in, values out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weir/classify/rule_spec.h"
#include "weir/serve/options.h"

namespace weir::config {

struct ServiceReload {
  std::string service;
  std::vector<RuleChange> changes;  // of rules, in this order
  std::optional<serve::Capacity> capacity;

  bool operator==(const ServiceReload&) const = default;
};

struct ShapeReload {
  std::string exported;
  serve::Shape shape;

  bool operator==(const ShapeReload&) const = default;
};

struct JobsReload {
  std::string file;  // read again whether or not its name is another
  std::vector<serve::JobNodes> nodes;
  serve::UnknownJobs unknown = serve::UnknownJobs::kOne;

  bool operator==(const JobsReload&) const = default;
};

struct ServeReload {
  std::vector<ServiceReload> services;       // those that change, in the order of the file
  std::vector<ShapeReload> shapes;           // the same
  std::optional<serve::ServeLimits> limits;  // if any of them changes
  std::optional<JobsReload> jobs;            // if [jobs] changes
  std::vector<std::string> changes;          // "server.connections: 4096 -> 100"
  std::vector<std::string> restart;          // "server.listen"

  bool operator==(const ServeReload&) const = default;
};

// Both as parse_serve_config() gave them.
ServeReload plan_reload(const serve::ServeOptions& before, const serve::ServeOptions& after);

// What of `after` is in force when the plan was carried out; the rest is as it was.
serve::ServeOptions reached(serve::ServeOptions before, const ServeReload& plan,
                            const serve::ServeOptions& after);

}  // namespace weir::config
