// SPDX-License-Identifier: Apache-2.0
#include "weir/config/serve_reload.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using serve::ServiceOptions;

// ---- the whole file ----

class Plan {
 public:
  Plan(const ServeOptions& before, const ServeOptions& after) : before_(before), after_(after) {}

  ServeReload make() {
    // A new field of the options must be handled here: otherwise this does not compile.
    const auto& [listen, exports, services, nodemaps, claims, limits, tls, jobs_file, jobs,
                 unknown_jobs, slurm, user, control_socket, trace_file, control, cluster, lock, nfs,
                 groups, io, threads] = after_;
    restart_if(before_.listen != listen, "server.listen");
    restart_if(before_.user != user, "server.user");
    restart_if(before_.control_socket != control_socket, "server.control_socket");
    restart_if(before_.trace_file != trace_file, "server.trace");
    restart_if(before_.io != io, "server.io");
    restart_if(before_.threads != threads, "server.threads");
    restart_if(before_.control != control, "control");
    restart_if(before_.cluster != cluster, "cluster");
    restart_if(before_.lock != lock, "lock");
    restart_if(before_.nfs != nfs, "nfs");
    restart_if(before_.tls != tls, "tls");
    restart_if(before_.claims != claims, "claims");
    restart_if(before_.nodemaps != nodemaps, "nodemap");
    restart_if(before_.slurm != slurm, "jobs.slurm");
    restart_if(before_.groups != groups, "groups");
    plan_limits(limits);
    if (before_.jobs_file != jobs_file || before_.jobs != jobs ||
        before_.unknown_jobs != unknown_jobs) {
      plan_.jobs = {jobs_file, jobs, unknown_jobs};
      plan_.changes.emplace_back("jobs");
    }
    plan_services(with_default(before_.services), with_default(services));
    plan_exports(exports);
    return std::move(plan_);
  }

 private:
  void restart_if(bool differs, std::string_view key) {
    if (differs) plan_.restart.emplace_back(key);
  }
  void change(std::string_view key, const std::string& from, const std::string& to) {
    if (from != to) plan_.changes.push_back(fmt::format("{}: {} -> {}", key, from, to));
  }

  void plan_limits(const serve::ServeLimits& limits) {
    const serve::ServeLimits& old = before_.limits;
    if (old == limits) return;
    plan_.limits = limits;
    const auto& [connections, memory, connection_memory, connection_requests, handshake_timeout,
                 drain_timeout] = limits;
    change("server.connections", std::to_string(old.connections), std::to_string(connections));
    change("server.memory", print_size(old.memory), print_size(memory));
    change("server.connection_memory", print_size(old.connection_memory),
           print_size(connection_memory));
    change("server.connection_requests", std::to_string(old.connection_requests),
           std::to_string(connection_requests));
    change("server.handshake_timeout", print_duration(old.handshake_timeout),
           print_duration(handshake_timeout));
    change("server.drain_timeout", print_duration(old.drain_timeout),
           print_duration(drain_timeout));
  }

  // The default service runs even if the file does not list it.
  static std::vector<ServiceOptions> with_default(std::vector<ServiceOptions> services) {
    if (find(services, serve::kDefaultService) == nullptr) services.push_back({});
    return services;
  }
  template <class List>
  static const typename List::value_type* find(const List& list, std::string_view name) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.name == name; });
    return found == list.end() ? nullptr : &*found;
  }

  void plan_services(const std::vector<ServiceOptions>& before,
                     const std::vector<ServiceOptions>& after) {
    for (const ServiceOptions& service : after) {
      const ServiceOptions* old = find(before, service.name);
      restart_if(old == nullptr, "service " + quote(service.name));
      if (old != nullptr) plan_service(*old, service);
    }
    for (const ServiceOptions& old : before) {
      restart_if(find(after, old.name) == nullptr, "service " + quote(old.name));
    }
  }

  void plan_service(const ServiceOptions& old, const ServiceOptions& service) {
    const auto& [name, policy, tunables, rules, more_rules, adaptive, capacity, slots, hp_slots,
                 latency_target, period, cost, classes, shares] = service;
    const std::string called = "service " + quote(name);
    restart_if(old.policy != policy, called + ": policy");
    restart_if(old.tunables != tunables, called + ": tunables");
    restart_if(old.adaptive != adaptive, called + ": adaptive");
    restart_if(old.slots != slots, called + ": slots");
    restart_if(old.hp_slots != hp_slots, called + ": hp_slots");
    restart_if(old.latency_target != latency_target, called + ": latency_target");
    restart_if(old.period != period, called + ": period");
    restart_if(old.cost != cost, called + ": cost");
    restart_if(old.classes != classes, called + ": classes");
    restart_if(old.shares.levels != shares.levels, called + ": tree of shares");
    restart_if(old.shares.accounts != shares.accounts, called + ": accounts of shares");
    restart_if(old.shares.names != shares.names, called + ": names of shares");
    ServiceReload reload{name, {}, {}};
    // With other levels the paths would have another meaning.
    if (old.shares.levels == shares.levels) {
      reload.weights = plan_weights(called, old.shares.weights, shares.weights);
    }
    if (old.rules != rules) {
      // Under another policy, or with other nodemaps, the commands would have another meaning.
      const bool stands = old.policy == policy && before_.nodemaps == after_.nodemaps;
      auto changes = stands ? rule_changes(old.rules, rules) : std::nullopt;
      restart_if(!changes, called + ": rules");
      if (changes) {
        for (const RuleChange& one : *changes) {
          plan_.changes.push_back(fmt::format("{}: {}", called, weir::print(one)));
        }
        reload.changes = *std::move(changes);
      }
    }
    if (old.capacity != capacity) {
      // Bytes and operations cost differently.
      using Kind = serve::Capacity::Kind;
      const bool same_cost =
          cost || (old.capacity.kind == Kind::kBytes) == (capacity.kind == Kind::kBytes);
      restart_if(!same_cost, called + ": capacity");
      if (same_cost) {
        change(called + ": capacity", print(old.capacity), print(capacity));
        reload.capacity = capacity;
      }
    }
    if (!reload.changes.empty() || reload.capacity || !reload.weights.empty()) {
      plan_.services.push_back(std::move(reload));
    }
  }

  std::map<std::string, std::uint64_t> plan_weights(
      const std::string& called, const std::map<std::string, std::uint64_t>& before,
      const std::map<std::string, std::uint64_t>& after) {
    std::map<std::string, std::uint64_t> changed;
    for (const auto& [path, weight] : before) {
      if (!after.contains(path)) changed[path] = 0;
    }
    for (const auto& [path, weight] : after) {
      const auto found = before.find(path);
      if (found == before.end() || found->second != weight) changed[path] = weight;
    }
    const auto text = [](const auto& weights, const std::string& path) {
      const auto found = weights.find(path);
      return found == weights.end() ? std::string("1") : std::to_string(found->second);
    };
    for (const auto& [path, weight] : changed) {
      change(called + ": weight of " + quote(path), text(before, path), text(after, path));
    }
    return changed;
  }

  static std::string print(const serve::Capacity& capacity) {
    if (!capacity.rate) return "auto";
    return capacity.kind == serve::Capacity::Kind::kBytes ? print_bandwidth(*capacity.rate)
                                                          : print_rate(*capacity.rate);
  }

  void plan_exports(const std::vector<serve::ExportOptions>& exports) {
    for (const serve::ExportOptions& exported : exports) {
      const serve::ExportOptions* old = find(before_.exports, exported.name);
      if (old == nullptr || !plan_shape(*old, exported)) {
        plan_.restart.push_back("export " + quote(exported.name));
      }
    }
    for (const serve::ExportOptions& old : before_.exports) {
      restart_if(find(exports, old.name) == nullptr, "export " + quote(old.name));
    }
  }

  // False if more differs than the speed of a shaped store.
  bool plan_shape(const serve::ExportOptions& old, const serve::ExportOptions& exported) {
    if (old == exported) return true;
    serve::ExportOptions reshaped = old;
    if (!old.store.shape || !exported.store.shape) return false;
    reshaped.store.shape = exported.store.shape;
    if (reshaped != exported) return false;
    change("export " + quote(old.name), print(*old.store.shape), print(*exported.store.shape));
    plan_.shapes.push_back({exported.name, *exported.store.shape});
    return true;
  }

  static std::string print(const serve::Shape& shape) {
    std::string text = shape.iops ? "iops=" + print_rate(*shape.iops) : "";
    const auto add = [&](const char* key, const std::string& value) {
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
    };
    if (shape.bandwidth) add("bps", print_bandwidth(*shape.bandwidth));
    if (shape.latency > Nanoseconds{0}) add("latency", print_duration(shape.latency));
    return text.empty() ? "not shaped" : text;
  }

  const ServeOptions& before_;
  const ServeOptions& after_;
  ServeReload plan_;
};

}  // namespace

ServeOptions reached(ServeOptions before, const ServeReload& plan, const ServeOptions& after) {
  const auto find = [](auto& list, std::string_view name) {
    return std::find_if(list.begin(), list.end(), [&](auto& each) { return each.name == name; });
  };
  if (plan.limits) before.limits = *plan.limits;
  if (plan.jobs) {
    before.jobs_file = plan.jobs->file;
    before.jobs = plan.jobs->nodes;
    before.unknown_jobs = plan.jobs->unknown;
  }
  for (const ServiceReload& reload : plan.services) {
    auto service = find(before.services, reload.service);
    if (service == before.services.end()) service = before.services.emplace(service);
    if (reload.capacity) service->capacity = *reload.capacity;
    for (const auto& [path, weight] : reload.weights) {
      service->shares.weights[path] = weight;
      if (weight == 0) service->shares.weights.erase(path);
    }
    if (reload.changes.empty()) continue;
    const auto wanted = find(after.services, reload.service);
    service->rules = wanted == after.services.end() ? std::vector<RuleChange>{} : wanted->rules;
  }
  for (const ShapeReload& reload : plan.shapes) {
    find(before.exports, reload.exported)->store.shape = reload.shape;
  }
  return before;
}

ServeReload plan_reload(const ServeOptions& before, const ServeOptions& after) {
  return Plan(before, after).make();
}

}  // namespace weir::config
