// SPDX-License-Identifier: Apache-2.0
#include "weir/control/cluster_requests.h"

#include <string>
#include <utility>
#include <vector>

#include "weir/control/change_request.h"
#include "weir/control/cluster_json.h"
#include "weir/control/problem.h"

namespace weir::control {
namespace {

using Reply = HttpServer::Reply;

constexpr std::string_view kCluster = "/v1/cluster";
constexpr std::string_view kRules = "/v1/cluster/rules";
constexpr std::string_view kMembers = "/v1/cluster/members/";

// The commands that made a rule of the cluster.
std::string text_of(const std::vector<serve::ClusterRule>& rules, std::string_view service,
                    std::string_view rule) {
  for (const serve::ClusterRule& one : rules) {
    if (one.service != service || one.rule != rule) continue;
    std::string text;
    for (const RuleChange& change : one.changes) {
      if (!text.empty()) text += "; ";
      text += print(change);
    }
    return text;
  }
  return "none";
}

serve::ClusterPort::Answer<void> answer_of_change(const ClusterRequestHost& host,
                                                  const AuditEntry& entry, const Reply& reply) {
  return [host, entry, reply](Result<void> done) {
    host.post([host, entry, reply, done = std::move(done)] {
      AuditEntry made = entry;
      if (!done) {
        made.error = done.error().message();
        made.after = made.before;
      }
      host.changed(made, done);
      reply(done ? HttpResponse{.body = "{}\n"} : error_response(done.error()));
    });
  };
}

void change_rule(serve::ClusterPort& cluster, const ClusterRequestHost& host,
                 const HttpRequest& request, const Reply& reply) {
  const auto wanted = read_cluster_change(request);
  if (!wanted) return reply(error_response(wanted.error()));
  AuditEntry entry;
  entry.who = request.who;
  entry.what = print(wanted->change);
  entry.on = "cluster service " + wanted->service;
  // The change is made even if the rules before it cannot be read.
  cluster.rules([&cluster, host, wanted = *wanted, entry, reply](const auto& rules) mutable {
    entry.before = rules ? text_of(*rules, wanted.service, wanted.change.name) : "unknown";
    entry.after = wanted.change.verb == Verb::kStop     ? "none"
                  : wanted.change.verb == Verb::kChange ? entry.before + "; " + entry.what
                                                        : entry.what;
    host.post([&cluster, host, wanted, entry, reply] {
      cluster.change_rule(wanted.service, wanted.change, answer_of_change(host, entry, reply));
    });
  });
}

void forget_member(serve::ClusterPort& cluster, const ClusterRequestHost& host,
                   const HttpRequest& request, const Reply& reply) {
  std::string name = request.path.substr(kMembers.size());
  AuditEntry entry;
  entry.who = request.who;
  entry.what = "forget member";
  entry.on = "cluster member " + name;
  cluster.forget(std::move(name), answer_of_change(host, entry, reply));
}

}  // namespace

bool is_cluster_path(std::string_view path) {
  return path == kCluster || path == kRules || path.starts_with(kMembers);
}

void answer_cluster(serve::ClusterPort* cluster, const ClusterRequestHost& host,
                    const HttpRequest& request, const Reply& reply) {
  const bool is_rules = request.path == kRules;
  if (cluster == nullptr) {
    reply(error_response(404, "this server is not in a cluster", "see [cluster] in weir.conf(5)"));
  } else if (request.method == "POST" && is_rules) {
    change_rule(*cluster, host, request, reply);
  } else if (request.method == "DELETE" && request.path.starts_with(kMembers)) {
    forget_member(*cluster, host, request, reply);
  } else if (is_rules) {
    cluster->rules([host, reply](Result<std::vector<serve::ClusterRule>> rules) {
      host.post([reply, rules = std::move(rules)] {
        reply(rules ? HttpResponse{.body = cluster_rules_json(*rules)}
                    : error_response(rules.error()));
      });
    });
  } else {
    cluster->status([host, reply](Result<serve::ClusterStatus> status) {
      host.post([reply, status = std::move(status)] {
        reply(status ? HttpResponse{.body = cluster_json(*status)}
                     : error_response(status.error()));
      });
    });
  }
}

}  // namespace weir::control
