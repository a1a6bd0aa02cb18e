// SPDX-License-Identifier: Apache-2.0
//
// Plans the reload of a configuration file (SIGHUP). The file is compared with its last applied
// version, not with the running state: so only edits have an effect, and changes made by an
// administrator since then remain. FileFollower applies the plan.
//
//   ServeReload plan = plan_reload(applied, read_now);
//   plan.services, plan.shapes, plan.limits, plan.jobs     to apply at once
//   plan.changes                              a line each, for the log
//   plan.restart                              keys that take effect only at the next start
//   applied = reached(applied, plan, read_now)              for the next reload
//
// Applied at once: rules, capacities (also to and from `auto`), weights of nodes of a tree of
// shares, shapes of stores that were opened as shaped, limits, jobs. Rules become commands that
// turn the old list into the new one: a rule of which only limits differ is changed, and its
// classes keep their balances; from the first other difference on, rules are stopped and started
// again, so that the order is that of the file. Rules that were never in the file are not touched.
// Pure: values in, values out.
#pragma once

#include <cstdint>
#include <map>
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
  // Of nodes of the tree of shares, by path; 0: it has no weight of its own any more.
  std::map<std::string, std::uint64_t> weights = {};

  bool operator==(const ServiceReload&) const = default;
};

struct ShapeReload {
  std::string exported;
  serve::Shape shape;

  bool operator==(const ShapeReload&) const = default;
};

struct JobsReload {
  std::string file;  // read again even if its name has not changed
  std::vector<serve::JobNodes> nodes;
  serve::UnknownJobs unknown = serve::UnknownJobs::kOne;

  bool operator==(const JobsReload&) const = default;
};

struct ServeReload {
  std::vector<ServiceReload> services;       // services that change, in the order of the file
  std::vector<ShapeReload> shapes;           // shapes that change, in the order of the file
  std::optional<serve::ServeLimits> limits;  // if any of them changes
  std::optional<JobsReload> jobs;            // if [jobs] changes
  std::vector<std::string> changes;          // "server.connections: 4096 -> 100"
  std::vector<std::string> restart;          // "server.listen"

  bool operator==(const ServeReload&) const = default;
};

// Both are results of parse_serve_config().
ServeReload plan_reload(const serve::ServeOptions& before, const serve::ServeOptions& after);

// The options in effect after the plan was applied: those of `after` where the plan changed them,
// otherwise those of `before`.
serve::ServeOptions reached(serve::ServeOptions before, const ServeReload& plan,
                            const serve::ServeOptions& after);

}  // namespace weir::config
