// SPDX-License-Identifier: Apache-2.0
//
// weir lustre status, top, explain, ledger and metrics: what a running driver says about itself.
#include <algorithm>

#include <fmt/core.h>
#include <fmt/format.h>

#include "apps/weir/lustre.h"

namespace weir::app {
namespace {

std::string capacity_of(const Json& service) {
  return service["capacity"].is_null()
             ? "not known yet"
             : fmt::format("{}/s", service["capacity"].get<std::uint64_t>());
}

void show_status(const Json& service) {
  const Json& counters = service["counters"];
  fmt::print("service    {}, algorithm {}{}\n", service["service"].get<std::string>(),
             service["algorithm"].get<std::string>(),
             service["dry_run"].get<bool>() ? " (dry run)" : "");
  fmt::print("capacity   {}\n", capacity_of(service));
  fmt::print("load       {} requests in service, {} wait\n", service["busy"].get<std::uint64_t>(),
             service["queued"].get<std::uint64_t>());
  fmt::print("jobs       {}, {} held\n", service["jobs"].size(),
             service["held"].get<std::uint64_t>());
  fmt::print("rounds     {}, {} failed\n", counters["rounds"].get<std::uint64_t>(),
             counters["failed_rounds"].get<std::uint64_t>());
  fmt::print("rules      {} written, {} refused, {} repaired, {} stopped by others\n",
             counters["writes"].get<std::uint64_t>(),
             counters["failed_writes"].get<std::uint64_t>(),
             counters["repairs"].get<std::uint64_t>(), counters["stolen"].get<std::uint64_t>());
}

void show_top(const Json& service) {
  std::vector<const Json*> jobs;
  for (const Json& job : service["jobs"]) jobs.push_back(&job);
  std::stable_sort(jobs.begin(), jobs.end(), [](const Json* a, const Json* b) {
    return (*a)["per_second"].get<std::uint64_t>() > (*b)["per_second"].get<std::uint64_t>();
  });
  fmt::print("{:<32} {:>6} {:<10} {:>9} {:>9} {:>9}  {}\n", "JOB", "NODES", "STATE", "SERVED/S",
             "ENTITLED", "RATE", "WHY");
  for (const Json* job : jobs) {
    const Json& it = *job;
    const auto entitlement = it["entitlement"].get<std::uint64_t>();
    fmt::print("{:<32} {:>6} {:<10} {:>9} {:>9} {:>9}  {}\n", it["job"].get<std::string>(),
               it["nodes"].get<std::uint64_t>(), it["state"].get<std::string>(),
               it["per_second"].get<std::uint64_t>(),
               entitlement == 0 ? "-" : std::to_string(entitlement),
               it["rate"].is_null() ? "-" : std::to_string(it["rate"].get<std::uint64_t>()),
               it["why"].get<std::string>());
  }
}

void show_ledger(const Json& service) {
  fmt::print("{:<32} {:>12}  {}\n", "JOB", "RECORD", "TOKENS");
  for (const Json& job : service["jobs"]) {
    const auto record = job["record"].get<std::int64_t>();
    if (record == 0) continue;
    fmt::print("{:<32} {:>12}  {}\n", job["job"].get<std::string>(), record,
               record > 0 ? "lent to other jobs" : "owed to other jobs");
  }
}

void explain_job(const Remote& remote, const std::string& job) {
  const std::string text = remote.ask("GET", "/v1/lustre/explain?job=" + control::url_text(job));
  if (remote.json) return fmt::print("{}\n", text);
  for (const Json& one : Json::parse(text)) {
    fmt::print("{}: {} {}\n", one["service"].get<std::string>(), one["job"].get<std::string>(),
               one["why"].get<std::string>());
    fmt::print("  {} nodes, {}; served {}/s, entitled to {}/s; held {} times, {:.1f} s in all\n",
               one["nodes"].get<std::uint64_t>(), one["state"].get<std::string>(),
               one["per_second"].get<std::uint64_t>(), one["entitlement"].get<std::uint64_t>(),
               one["held_times"].get<std::uint64_t>(), one["held_seconds"].get<double>());
  }
}

// Slices of this server, and what keeps limits from holding.
void show_slices(const Json& status) {
  fmt::print("\n{:<40} {:>12}\n", "HERE", "SLICE/S");
  for (const Json& slice : status["slices"]) {
    fmt::print("{:<40} {:>12}{}\n", slice["of"].get<std::string>(),
               short_number(slice["milli_per_s"].get<double>() / 1000),
               slice["leased"].get<bool>() ? "" : "  cut off from the cluster");
  }
  for (const Json& error : status["rule_errors"]) {
    fmt::print("error: {}\n", error.get<std::string>());
  }
}

}  // namespace

int limit_lustre(const LustreArguments& arguments) {
  Remote remote = arguments.remote;
  if (remote.socket.empty()) remote.socket = kLustreSocket;
  const std::string& verb = arguments.object;
  const bool lists = verb.empty() || verb == "list";
  if (lists != arguments.words.empty()) {
    throw Failure{Exit::kUsage, lists
                                    ? "limit list: takes no arguments"
                                    : fmt::format("limit {}: expected the name of a limit", verb)};
  }
  if (arguments.services.size() > 1) {
    throw Failure{Exit::kUsage, "limit: a limit is of one service; name one with --service"};
  }
  if (lists) {
    const std::string text = remote.ask("GET", "/v1/cluster/rules");
    if (remote.json) {
      fmt::print("{}", text);
    } else {
      show_cluster_rules(Json::parse(text));
      show_slices(remote.get("/v1/cluster"));
    }
  } else {
    const std::string service =
        arguments.services.empty() ? std::string(lustre::kOstService.name) : arguments.services[0];
    const std::string command = fmt::format("{} {}", verb, fmt::join(arguments.words, " "));
    const std::string answer = change_cluster_rule(remote, service, command);
    if (remote.json) fmt::print("{}", answer);
  }
  check_output();
  return 0;
}

int show_lustre(const LustreArguments& arguments) {
  Remote remote = arguments.remote;
  if (remote.socket.empty()) remote.socket = kLustreSocket;
  const std::string& action = arguments.action;
  if (action == "explain") {
    explain_job(remote, arguments.object);
  } else if (action == "metrics") {
    fmt::print("{}", remote.ask("GET", "/metrics"));
  } else if (remote.json) {
    fmt::print("{}\n", remote.ask("GET", "/v1/lustre"));
  } else {
    const Json all = remote.get("/v1/lustre");
    if (all["services"].empty()) fmt::print("the first period has not ended yet\n");
    bool is_first = true;
    for (const Json& service : all["services"]) {
      if (!std::exchange(is_first, false)) fmt::print("\n");
      if (action != "status" && all["services"].size() > 1) {
        fmt::print("{}\n", service["service"].get<std::string>());
      }
      if (action == "status") show_status(service);
      if (action == "top") show_top(service);
      if (action == "ledger") show_ledger(service);
    }
  }
  check_output();
  return 0;
}

}  // namespace weir::app
