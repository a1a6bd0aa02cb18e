// SPDX-License-Identifier: Apache-2.0
//
// weir cluster: status and rules of a cluster, through any of its servers.
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "apps/weir/remote.h"

namespace weir::app {
namespace {

constexpr const char* kClusterFooter = R"(
Examples:
  weir cluster status
  weir cluster forget oss7
  weir cluster rule start dd 'jobid={dd.*}' rate=1000 by=rule
  weir cluster rule change dd rate=2000
  weir cluster rule stop dd

A rule of the cluster limits all its servers together. Manual: weir-cluster(1).)";

struct ClusterArguments {
  Remote remote;
  std::string service = "ost_io";
  std::string member;
  std::vector<std::string> words;
};

Json parsed(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw Failure{Exit::kTempFail, "the server's response is not JSON"};
  return json;
}

std::string text_of(const Json& json, const char* key) { return json[key].get<std::string>(); }

// The slices of one server, in a row: "ost_io/dd/ops 450/s".
std::string slices_text(const Json& slices) {
  std::string text;
  for (const Json& one : slices) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}/s{}", text_of(one, "of"),
                        short_number(one["milli_per_s"].get<double>() / 1000),
                        one["leased"].get<bool>() ? "" : " (cut off)");
  }
  return text;
}

// "away", and for how long this server has not seen it: "away 3m", "away 5h".
std::string state_text(const Json& member) {
  if (member["joined"].get<bool>()) return "joined";
  if (member["registered"].get<bool>()) return "registered";
  if (member["away_ns"].is_null()) return "away";
  const std::int64_t seconds = member["away_ns"].get<std::int64_t>() / 1'000'000'000;
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  constexpr std::int64_t kDay = 24 * kHour;
  return seconds < 2 * kMinute ? fmt::format("away {}s", seconds)
         : seconds < 2 * kHour ? fmt::format("away {}m", seconds / kMinute)
         : seconds < 2 * kDay  ? fmt::format("away {}h", seconds / kHour)
                               : fmt::format("away {}d", seconds / kDay);
}

void show_status(const Json& status) {
  const auto number = [&](const char* key) { return status[key].get<std::uint64_t>(); };
  const std::string why = text_of(status, "why");
  fmt::print("server    {}, {}{}\n", text_of(status, "name"), text_of(status, "state"),
             why.empty() ? "" : ": " + why);
  const std::string leader = text_of(status, "leader");
  fmt::print("leader    {}, term {}\n", leader.empty() ? "none" : leader, number("term"));
  fmt::print("epoch     {}:{}, {} in total, {} calls without an epoch\n", number("epoch") >> 32,
             number("epoch") & UINT32_MAX, number("epochs"), number("errors"));
  if (const Json& it = status["at_leader"]; !it.is_null()) {
    fmt::print("rounds    {}, {} at the median, {} at p99\n", it["rounds"].get<std::uint64_t>(),
               short_time(it["round_median_ns"].get<double>()),
               short_time(it["round_p99_ns"].get<double>()));
    fmt::print("errors    {} evictions, {} refused calls, {} malformed messages\n",
               it["evictions"].get<std::uint64_t>(), it["refused"].get<std::uint64_t>(),
               it["garbage"].get<std::uint64_t>());
    if (it["waits_for_reports"].get<bool>()) {
      fmt::print(
          "free      only what members have released: some have not reported what they hold; "
          "start them, or forget members that will not come back\n");
    }
    for (const Json& course : it["courses"]) {
      fmt::print("turns     {}: {} servers, {} rounds, {} evictions\n", text_of(course, "service"),
                 course["members"].get<std::uint64_t>(), course["rounds"].get<std::uint64_t>(),
                 course["evictions"].get<std::uint64_t>());
    }
  }
  if (number("counted") > 0) {
    fmt::print("limits    for {} members; partition = {}\n", number("counted"),
               text_of(status, "partition"));
  }
  if (!status["slices"].empty()) fmt::print("here      {}\n", slices_text(status["slices"]));
  for (const Json& error : status["rule_errors"]) {
    fmt::print("error     {}\n", error.get<std::string>());
  }
  fmt::print("\n{:<20} {:<22} {:<10} {}\n", "MEMBER", "ADDRESS", "STATE", "SLICES");
  for (const Json& one : status["members"]) {
    fmt::print("{:<20} {:<22} {:<10} {}\n", text_of(one, "name"), text_of(one, "address"),
               state_text(one), slices_text(one["slices"]));
  }
}

}  // namespace

void show_cluster_rules(const Json& rules) {
  fmt::print("{:<12} {:<16} {}\n", "SERVICE", "RULE", "COMMANDS");
  for (const Json& one : rules) {
    std::string service = text_of(one, "service");
    std::string rule = text_of(one, "rule");
    for (const Json& command : one["commands"]) {
      fmt::print("{:<12} {:<16} {}\n", std::exchange(service, ""), std::exchange(rule, ""),
                 command.get<std::string>());
    }
  }
}

std::string change_cluster_rule(const Remote& remote, const std::string& service,
                                const std::string& command) {
  const Json body{{"service", service}, {"command", command}};
  return remote.ask("POST", "/v1/cluster/rules", body.dump());
}

namespace {

void show(const ClusterArguments& arguments, const char* path, void (*printer)(const Json&)) {
  const std::string text = arguments.remote.ask("GET", path);
  if (arguments.remote.json) {
    fmt::print("{}", text);
  } else {
    printer(parsed(text));
  }
}

void forget(const ClusterArguments& arguments) {
  const std::string path = "/v1/cluster/members/" + control::url_text(arguments.member);
  const std::string answer = arguments.remote.ask("DELETE", path);
  if (arguments.remote.json) fmt::print("{}", answer);
}

void send_rule(const ClusterArguments& arguments, const char* verb) {
  std::string command = verb;
  for (const std::string& word : arguments.words) command += " " + word;
  const std::string answer = change_cluster_rule(arguments.remote, arguments.service, command);
  if (arguments.remote.json) fmt::print("{}", answer);
}

void add_rule(CLI::App& cluster, const std::shared_ptr<ClusterArguments>& arguments, int& status) {
  CLI::App* const rule =
      cluster.add_subcommand("rule", "Manage rules that hold on all servers together");
  rule->require_subcommand(1);
  rule->fallthrough();
  const auto with = [&](const char* name, const char* help, const char* words) {
    CLI::App* const command = rule->add_subcommand(name, help);
    command->fallthrough();
    command->add_option("rule", arguments->words, words)->required()->type_name("WORD");
    command->callback([arguments, name, &status] {
      send_rule(*arguments, name);
      status = static_cast<int>(Exit::kOk);
    });
  };
  with("start", "Start a rule: NAME CONDITIONS [KEY=VALUE...]", "See weir-rules(7)");
  with("change", "Change a rule: NAME KEY=VALUE...", "See weir-rules(7)");
  with("stop", "Stop a rule", "Name of the rule");
  CLI::App* const list = rule->add_subcommand("list", "List the rules");
  list->fallthrough();
  list->callback([arguments, &status] {
    show(*arguments, "/v1/cluster/rules", show_cluster_rules);
    status = static_cast<int>(Exit::kOk);
  });
}

}  // namespace

void add_cluster(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<ClusterArguments>();
  CLI::App* const cluster = weir.add_subcommand(
      "cluster", "Show a cluster of servers and manage the limits that they share");
  cluster->require_subcommand(1);
  arguments->remote.add_to(*cluster);
  cluster
      ->add_option("--service", arguments->service,
                   "Manage the rules of this service (default ost_io)")
      ->type_name("NAME");
  cluster->footer(kClusterFooter);
  CLI::App* const shown =
      cluster->add_subcommand("status", "Show the members, the leader and the slices");
  shown->fallthrough();
  shown->callback([arguments, &status] {
    show(*arguments, "/v1/cluster", show_status);
    status = static_cast<int>(Exit::kOk);
  });
  CLI::App* const forgotten =
      cluster->add_subcommand("forget", "Remove a member that will not come back");
  forgotten->fallthrough();
  forgotten->add_option("name", arguments->member, "Name of a member that is away")
      ->required()
      ->type_name("NAME");
  forgotten->callback([arguments, &status] {
    forget(*arguments);
    status = static_cast<int>(Exit::kOk);
  });
  add_rule(*cluster, arguments, status);
}

}  // namespace weir::app
