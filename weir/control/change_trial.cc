// SPDX-License-Identifier: Apache-2.0
#include "weir/control/change_trial.h"

#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weir/base/quote.h"
#include "weir/control/snapshot.h"

namespace weir::control {
namespace {

using serve::KeptRules;
constexpr std::string_view kRuleLeaf = "nrs_tbf_rule";

// The service of ost.OSS.<service>.nrs_tbf_rule.
serve::Service* rules_of(serve::Server& server, const Param& param) {
  const bool is_rules = param.parts.size() == 4 && param.parts.back() == kRuleLeaf;
  return is_rules ? server.find_service(param.parts[2]) : nullptr;
}

ParamOutcome outcome_of(const Change& change) {
  return {change.target, change.target, value_text(change), {}};
}

ParamOutcome not_found(const Change& change) {
  ParamOutcome outcome = outcome_of(change);
  outcome.error = {std::errc::no_such_file_or_directory, quote(change.target), "no such parameter",
                   "list parameters with list_param"};
  return outcome;
}

KeptRules::Keeping keeping_of(const ChangeItem& item) {
  return item.is_kept ? KeptRules::Keeping::kKept : KeptRules::Keeping::kTemporary;
}

// Text that could not be read is read for the type of the service, for the error of a Lustre
// server; so is a value written to a pattern that names rules and other parameters.
Result<RuleChange> rule_in(const Change& change, const serve::Service& service) {
  const RuleChange* const rule = change.rule ? change_in(*change.rule) : nullptr;
  if (rule != nullptr) return *rule;
  return service.target.read_rule(value_text(change));
}

Result<void> write_param(serve::Server& server, const Param& param, const ChangeItem& item) {
  serve::Service* const service = rules_of(server, param);
  if (service == nullptr) return param.write(value_text(item.change));
  const auto rule = rule_in(item.change, *service);
  if (!rule) return tl::unexpected(rule.error());
  return service->rules.apply(*rule, keeping_of(item), server.now());
}

// The command of a change of rules. A pattern may name rules and other parameters; what is
// forgotten of it is read here.
std::optional<RuleOrText> forgotten_or_rule(const Change& change) {
  if (change.kind != Change::Kind::kForget || !change.value) return change.rule;
  return read_or_keep(*change.value);
}

// Rule commands in a form that has the same meaning under any type.
std::vector<Change> records_for(serve::Server& server, const Params& params, const Change& change) {
  std::vector<Change> records;
  if (const auto command = forgotten_or_rule(change)) {
    for (const Param* const param : params.find(change.target)) {
      const serve::Service* const service = rules_of(server, *param);
      if (service == nullptr) continue;
      auto full = service->rules.in_full(*command);
      if (full == *command) continue;
      records.push_back({.kind = change.kind, .target = param->path(), .rule = std::move(full)});
    }
  }
  if (records.empty()) records.push_back(change);
  return records;
}

// Rules are restored last, after all policies.
std::vector<std::string> restore_rules(serve::Server& server, const std::vector<Change>& changes,
                                       std::vector<std::string>& mistakes) {
  const Params params = server_params(server, moment_at(server.now()));
  std::map<std::string, std::vector<RuleChange>> commands;  // by service
  std::map<std::string, std::set<std::string>> forgetting;  // records by command
  for (const Change& change : changes) {
    if (!is_rule(change)) continue;
    bool is_known = false;
    for (const Param* const param : params.find(change.target)) {
      const serve::Service* const service = rules_of(server, *param);
      if (service == nullptr) continue;
      is_known = true;
      if (const auto rule = rule_or_error(*change.rule)) {
        commands[service->name].push_back(*rule);
      } else {
        mistakes.push_back(fmt::format("service {}: {}: {}", quote(service->name),
                                       quote(value_text(change)), rule.error().message()));
      }
      forgetting[print(service->rules.in_full(*change.rule))].insert(print_change(
          {.kind = Change::Kind::kForget, .target = change.target, .rule = change.rule}));
    }
    if (!is_known) mistakes.push_back(print_change(change) + ": no such service");
  }
  std::vector<std::string> records;
  for (const auto& [name, kept] : commands) {
    const auto restored = server.find_service(name)->rules.restore(kept, server.now());
    for (const std::string& mistake : restored.mistakes) {
      mistakes.push_back(fmt::format("service {}: {}", quote(name), mistake));
    }
    for (const RuleChange& conflict : restored.conflicts) {
      const auto& those = forgetting[print(conflict)];
      records.insert(records.end(), those.begin(), those.end());
    }
  }
  return records;
}

}  // namespace

Result<void> ChangeTrial::try_param(const Param& param, const ChangeItem& item) {
  if (serve::Service* const service = rules_of(server_, param)) {
    const auto rule = rule_in(item.change, *service);
    if (!rule) return tl::unexpected(rule.error());
    auto& trial = rules_[service->name];
    if (trial == nullptr) trial = std::make_unique<KeptRules::Trial>(service->rules);
    is_needed_ = is_needed_ || trial->is_needed(*rule);
    return trial->apply(*rule, keeping_of(item));
  }
  // A parameter without a check is an action, not a setting to keep.
  is_needed_ = is_needed_ || param.check != nullptr;
  return param.check ? param.check(value_text(item.change)) : Result<void>{};
}

Tried ChangeTrial::apply(const ChangeItem& item) {
  const Change& change = item.change;
  Tried tried;
  const auto note = [&](ParamOutcome outcome, const Result<void>& done) {
    if (!done) outcome.error = done.error();
    tried.outcomes.push_back(std::move(outcome));
  };
  is_needed_ = item.is_for_locks || change.kind != Change::Kind::kParam;
  if (const auto allowed = check_own(server_, change); !allowed) {
    note(outcome_of(change), allowed);
  } else if (change.kind == Change::Kind::kParam) {
    for (const Param* const param : params_.find(change.target)) {
      note({param->path(), param->slashed(), value_text(change), {}}, try_param(*param, item));
    }
    if (tried.outcomes.empty() && !item.is_for_locks) tried.outcomes.push_back(not_found(change));
  } else {
    note(outcome_of(change), check(server_, change));
  }
  if (item.is_kept && is_needed_ && tried.is_done()) {
    tried.records = records_for(server_, params_, change);
  }
  return tried;
}

std::vector<ParamOutcome> carry_out(serve::Server& server, const ChangeItem& item,
                                    const Moment& moment) {
  const Change& change = item.change;
  Notes notes;
  const Params params = server_params(server, moment, &notes);
  std::vector<ParamOutcome> outcomes;
  // The cluster may have started a rule of this name since the check.
  if (const auto allowed = check_own(server, change); !allowed) {
    outcomes.push_back(outcome_of(change));
    outcomes.back().error = allowed.error();
    return outcomes;
  }
  if (change.kind == Change::Kind::kParam) {
    for (const Param* const param : params.find(change.target)) {
      const auto written = write_param(server, *param, item);
      outcomes.push_back({param->path(), param->slashed(), value_text(change), {}});
      if (!written) outcomes.back().error = written.error();
    }
    if (outcomes.empty() && !item.is_for_locks) outcomes.push_back(not_found(change));
    if (!notes.empty()) outcomes.back().note = fmt::format("{}", fmt::join(notes, "; "));
    return outcomes;
  }
  outcomes.push_back(outcome_of(change));
  if (change.kind == Change::Kind::kForget) {
    for (const Param* const param : params.find(change.target)) {
      serve::Service* const service = rules_of(server, *param);
      if (service == nullptr) continue;
      auto command = forgotten_or_rule(change);
      if (command) command = service->rules.in_full(*std::move(command));
      service->rules.forget(command);
    }
  } else if (const auto done = apply(server, change); !done) {
    outcomes.back().error = done.error();
  }
  return outcomes;
}

std::vector<std::string> replay(serve::Server& server, const std::vector<Change>& changes,
                                std::vector<std::string>& mistakes) {
  const Moment moment = moment_at(server.now());
  for (const Change& change : changes) {
    if (is_rule(change)) continue;
    const auto failed = failure_of(carry_out(server, {.change = change}, moment));
    if (failed) mistakes.push_back(print_change(change) + ": " + failed->message());
  }
  return restore_rules(server, changes, mistakes);
}

}  // namespace weir::control
