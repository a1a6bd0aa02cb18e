// SPDX-License-Identifier: Apache-2.0
#include "weir/config/file_follower.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir::config {
namespace {

using serve::Server;
using serve::Service;

// The rules of the service in the file; empty if the file does not list it.
const std::vector<RuleChange>& rules_of(const serve::ServeOptions& options,
                                        std::string_view service) {
  static const std::vector<RuleChange> none;
  const auto found = std::find_if(options.services.begin(), options.services.end(),
                                  [&](const auto& one) { return one.name == service; });
  return found == options.services.end() ? none : found->rules;
}

void apply_capacity(const ServiceReload& reload, Service& service, Instant now) {
  // A plan contains no capacity in another unit: that needs a restart.
  const auto set = service.target.set_capacity(*reload.capacity, now);
  WEIR_ASSERT(set.has_value());
}

void apply_weights(const ServiceReload& reload, Service& service, Instant now) {
  for (const auto& [path, weight] : reload.weights) {
    service.shares.weights[path] = weight;
    if (weight == 0) service.shares.weights.erase(path);
    const auto set = service.target.set_node_weight(path, weight, now);
    WEIR_ASSERT(set.has_value());  // as the file was checked
  }
}

void apply(const ServeReload& plan, serve::JobTable jobs, Server& server) {
  for (const ServiceReload& reload : plan.services) {
    Service& service = *server.find_service(reload.service);
    if (reload.capacity) apply_capacity(reload, service, server.now());
    apply_weights(reload, service, server.now());
  }
  for (const ShapeReload& reload : plan.shapes) {
    const auto reshaped = server.reshape(reload.exported, reload.shape);
    WEIR_ASSERT(reshaped.has_value());
  }
  if (plan.limits) {
    const auto set = server.set_limits(*plan.limits);
    WEIR_ASSERT(set.has_value());
  }
  if (plan.jobs) {
    for (const auto& service : server.services()) {
      service->target.set_nodes_by_clients(plan.jobs->unknown == serve::UnknownJobs::kClients,
                                           server.now());
    }
  }
  server.set_jobs(std::move(jobs));
}

}  // namespace

FileFollower::FileFollower(Read read, serve::ServeOptions started_with)
    : read_(std::move(read)), applied_(std::move(started_with)) {}

Result<std::vector<RuleChange>> FileFollower::plan_rules(const serve::KeptRules& rules,
                                                         const std::vector<RuleChange>& file) {
  auto changes = rules.plan_file(file);
  if (!changes) return tl::unexpected(changes.error());
  if (*changes) return std::move(**changes);
  return fail(std::errc::device_or_resource_busy, "rules",
              "'default' cannot be reset to its initial limits while the server runs",
              "restart the server, or give all its keys");
}

Result<FileFollower::RulePlans> FileFollower::check(const Server& server, const ServeReload& plan,
                                                    const serve::ServeOptions& wanted) {
  RulePlans plans;
  for (const ServiceReload& reload : plan.services) {
    if (reload.changes.empty()) continue;
    const Service* const service = server.find_service(reload.service);
    WEIR_ASSERT(service != nullptr);
    auto changes = plan_rules(service->rules, rules_of(wanted, reload.service));
    if (!changes) {
      Error error = changes.error();
      error.where = fmt::format("service {}: {}", quote(reload.service), error.where);
      return tl::unexpected(std::move(error));
    }
    plans.emplace_back(reload.service, std::move(*changes));
  }
  if (plan.limits) {
    if (auto checked = server.check_limits(*plan.limits); !checked) {
      return tl::unexpected(checked.error());
    }
  }
  return plans;
}

std::vector<std::string> FileFollower::follow(Server& server, const std::function<void()>& more) {
  const auto refuse = [](const Error& error) {
    return std::vector<std::string>{error.message(), "the configuration was not changed"};
  };
  const auto wanted = read_();
  if (!wanted) return refuse(wanted.error());
  auto jobs = Server::load_jobs(wanted->jobs_file, wanted->jobs);
  if (!jobs) return refuse(jobs.error());
  const ServeReload plan = plan_reload(applied_, *wanted);
  const auto plans = check(server, plan, *wanted);
  if (!plans) return refuse(plans.error());
  apply(plan, std::move(*jobs), server);
  if (more) more();
  for (const auto& [service, changes] : *plans) {
    server.find_service(service)->rules.follow_file(rules_of(*wanted, service), changes,
                                                    server.now());
  }
  applied_ = reached(std::move(applied_), plan, *wanted);
  std::vector<std::string> lines;
  lines.reserve(plan.changes.size() + plan.restart.size() + 1);
  lines.insert(lines.end(), plan.changes.begin(), plan.changes.end());
  for (const std::string& key : plan.restart) {
    lines.push_back(key + ": takes effect at the next start");
  }
  lines.emplace_back("configuration reloaded");
  return lines;
}

}  // namespace weir::config
