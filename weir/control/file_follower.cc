// SPDX-License-Identifier: Apache-2.0
#include "weir/control/file_follower.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/schedule/gate.h"

namespace weir::control {
namespace {

using serve::Server;
using serve::Service;

// "[reg|hp] VERB NAME ..."
struct Words {
  explicit Words(std::string_view command) {
    std::string_view word = take(command);
    if (word == "reg" || word == "hp") word = take(command);
    verb = word;
    name = take(command);
  }
  static std::string_view take(std::string_view& rest) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    return word;
  }
  std::string_view verb;
  std::string_view name;
};

const Rule* find_rule(const Service& service, std::string_view name) {
  for (const Head head : kHeads) {
    const Tbf* const tbf = service.target.gate().tbf(head);
    const Rule* const rule = tbf == nullptr ? nullptr : tbf->rules(head).find(name);
    if (rule != nullptr) return rule;
  }
  return nullptr;
}

void apply_service(const ServiceReload& reload, Service& service, Instant now) {
  const auto applied = service.target.gate().apply_rules(reload.commands, now);
  WEIR_ASSERT(applied.has_value());
  if (!reload.capacity) return;
  // A plan has none in another unit: that takes a restart.
  const auto set = service.target.set_capacity(*reload.capacity, now);
  WEIR_ASSERT(set.has_value());
}

void apply(const ServeReload& plan, serve::JobTable jobs, Server& server) {
  for (const ServiceReload& reload : plan.services) {
    apply_service(reload, *server.find_service(reload.service), server.now());
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
      service->target.set_nodes_by_clients(plan.jobs->unknown == serve::UnknownJobs::kClients);
    }
  }
  server.set_jobs(std::move(jobs));
}

}  // namespace

FileFollower::FileFollower(Read read, serve::ServeOptions started_with, const Server& server)
    : read_(std::move(read)), applied_(std::move(started_with)) {
  for (const serve::ServiceOptions& one : applied_.services) {
    note_rules(*server.find_service(one.name), one.rules);
  }
}

// Who is the file's after these commands were applied.
void FileFollower::note_rules(const Service& service, const std::vector<std::string>& commands) {
  for (const std::string& command : commands) {
    const Words words(command);
    const std::pair key(service.name, std::string(words.name));
    if (words.verb == "stop") own_.erase(key);
    if (words.verb == "start") own_[key] = find_rule(service, words.name)->id();
  }
}

Result<void> FileFollower::check_rules(const Service& service,
                                       const std::vector<std::string>& commands) const {
  for (const std::string& command : commands) {
    const Words words(command);
    if (words.verb == "start") continue;
    const Rule* const rule = find_rule(service, words.name);
    const auto own = own_.find({service.name, std::string(words.name)});
    if (rule == nullptr || rule->is_default()) continue;
    if (own != own_.end() && own->second == rule->id()) continue;
    return fail(std::errc::operation_not_permitted, "rule " + quote(words.name),
                "is not the file's any more: somebody has stopped that and started another",
                "stop it first, or use another name in the file");
  }
  return service.target.gate().check_rules(commands);
}

Result<void> FileFollower::check(const Server& server, const ServeReload& plan) const {
  for (const ServiceReload& reload : plan.services) {
    const Service* const service = server.find_service(reload.service);
    WEIR_ASSERT(service != nullptr);
    if (auto checked = check_rules(*service, reload.commands); !checked) {
      Error error = checked.error();
      error.where = fmt::format("service {}: {}", quote(reload.service), error.where);
      return tl::unexpected(std::move(error));
    }
  }
  return plan.limits ? server.check_limits(*plan.limits) : Result<void>{};
}

std::vector<std::string> FileFollower::follow(Server& server, const std::function<void()>& more) {
  const auto refuse = [](const Error& error) {
    return std::vector<std::string>{error.message(), "nothing of the configuration was changed"};
  };
  const auto wanted = read_();
  if (!wanted) return refuse(wanted.error());
  auto jobs = Server::load_jobs(wanted->jobs_file, wanted->jobs);
  if (!jobs) return refuse(jobs.error());
  const ServeReload plan = plan_reload(applied_, *wanted);
  if (auto checked = check(server, plan); !checked) return refuse(checked.error());
  apply(plan, std::move(*jobs), server);
  if (more) more();
  for (const ServiceReload& reload : plan.services) {
    note_rules(*server.find_service(reload.service), reload.commands);
  }
  applied_ = reached(std::move(applied_), plan, *wanted);
  std::vector<std::string> lines;
  lines.reserve(plan.changes.size() + plan.restart.size() + 1);
  lines.insert(lines.end(), plan.changes.begin(), plan.changes.end());
  for (const std::string& key : plan.restart) {
    lines.push_back(key + ": takes effect at the next start");
  }
  lines.emplace_back("the configuration was read again");
  return lines;
}

}  // namespace weir::control
