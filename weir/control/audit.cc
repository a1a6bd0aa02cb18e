// SPDX-License-Identifier: Apache-2.0
#include "weir/control/audit.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include <fmt/format.h>
#include <fnmatch.h>

#include "weir/classify/rule_spec.h"
#include "weir/control/params.h"
#include "weir/control/snapshot.h"
#include "weir/serve/event_log.h"

namespace weir::control {
namespace {

constexpr std::size_t kValueMax = 256;  // bytes of a value in a line

// In double quotes, with every byte escaped that a terminal could interpret.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kValueMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > kValueMax ? "...\"" : "\"");
}

std::string rule_text(const Target& target, std::string_view name) {
  for (const Head head : kHeads) {
    const RuleView* const rules = target.rules(head);
    const Rule* const rule = rules == nullptr ? nullptr : rules->rules(head).find(name);
    if (rule != nullptr) return rule->conds() + " " + rule->limits().summary();
  }
  return "none";
}

std::string policy_text_of(const Target& target) {
  std::string text = "fifo";
  for (const Gate::PolicyStatus& policy : target.policies(Head::kRegular)) {
    if (policy.state != Gate::PolicyStatus::State::kStarted || policy.name == "fifo") continue;
    text = policy.name;
    if (!policy.argument.empty()) text += " " + std::string(policy.argument);
  }
  return text;
}

using OfService = std::function<std::string(const serve::Service&)>;

// Of every service that the change concerns, joined with commas.
std::string of_services(serve::Server& server,
                        const std::function<bool(const std::string&)>& is_one,
                        const OfService& text_of_one) {
  std::string all;
  for (const auto& service : server.services()) {
    if (!is_one(service->name)) continue;
    const std::string one = text_of_one(*service);
    if (one.empty()) continue;
    if (!all.empty()) all += ", ";
    all += one;
  }
  return all.empty() ? "none" : all;
}

std::string rule_or_policy(serve::Server& server, const Change& change) {
  const auto matches = [&](const std::string& name) {
    const std::string path = is_rule(change) ? rule_path(name) : policy_path(name);
    return fnmatch(change.target.c_str(), path.c_str(), 0) == 0;
  };
  if (is_policy(change)) {
    return of_services(server, matches,
                       [](const serve::Service& one) { return policy_text_of(one.target); });
  }
  const RuleChange* const rule = change.rule ? change_in(*change.rule) : nullptr;
  if (rule == nullptr) return "none";
  return of_services(server, matches,
                     [&](const serve::Service& one) { return rule_text(one.target, rule->name); });
}

}  // namespace

std::string audit_line(const AuditEntry& entry) {
  return fmt::format(
      "audit: change who={} what={} on={} before={} after={} generation={} result={}",
      in_quotes(entry.who), in_quotes(entry.what), in_quotes(entry.on), in_quotes(entry.before),
      in_quotes(entry.after), entry.generation,
      entry.error.empty() ? std::string("ok") : in_quotes(entry.error));
}

void audit(const AuditEntry& entry) {
  const std::array<host::LogField, 7> fields = {
      {{"WEIR_WHO", entry.who},
       {"WEIR_WHAT", entry.what},
       {"WEIR_ON", entry.on},
       {"WEIR_BEFORE", entry.before},
       {"WEIR_AFTER", entry.after},
       {"WEIR_GENERATION", entry.generation},
       {"WEIR_RESULT", entry.error.empty() ? "ok" : entry.error}}};
  serve::EventLog::audit(audit_line(entry), fields);
}

AuditEntry audit_entry(const Change& change) {
  AuditEntry entry;
  entry.on = change.target;
  switch (change.kind) {
    case Change::Kind::kParam:
      entry.what = value_text(change);
      break;
    case Change::Kind::kJob:
      entry.what = change.nodes == 0 ? "remove nodes" : fmt::format("nodes={}", change.nodes);
      entry.on = "job " + printable_id(change.target);
      break;
    case Change::Kind::kCapacity:
      entry.what = "capacity=" + change.value.value_or("");
      break;
    case Change::Kind::kForget:
      entry.what = "forget " + value_text(change);
      break;
  }
  return entry;
}

std::string state_for(serve::Server& server, const Change& change) {
  const auto all = [](const std::string&) { return true; };
  switch (change.kind) {
    case Change::Kind::kForget:
      return "journal";
    case Change::Kind::kJob:
      return of_services(server, all, [&](const serve::Service& one) -> std::string {
        const Controller* const controller = one.target.controller();
        if (controller == nullptr) return "";
        return fmt::format("nodes={}", controller->nodes_of(JobId(change.target)));
      });
    case Change::Kind::kCapacity:
      return of_services(
          server, [&](const std::string& name) { return name == change.target; },
          [](const serve::Service& one) -> std::string {
            const auto capacity = one.target.capacity();
            if (!capacity) return "auto";
            return std::to_string(tokens_in(*capacity, std::chrono::seconds{1}).count());
          });
    case Change::Kind::kParam:
      break;
  }
  if (is_rule(change) || is_policy(change)) return rule_or_policy(server, change);
  std::string values;
  for (const ParamOutcome& one :
       read_params(server_params(server, moment_at(server.now())), change.target)) {
    if (one.error.code != std::errc{}) continue;
    if (!values.empty()) values += ", ";
    values += one.value.substr(0, one.value.find('\n'));
  }
  return values.empty() ? "none" : values;
}

}  // namespace weir::control
