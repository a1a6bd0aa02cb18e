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
  return {change.target, change.target, change.value.value_or(""), {}};
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

// Rule commands in a form that has the same meaning under any type.
std::vector<std::string> records_for(serve::Server& server, const Params& params,
                                     const Change& change) {
  std::vector<std::string> records;
  const bool is_of_rules = is_rule(change) || change.kind == Change::Kind::kForget;
  if (is_of_rules && change.value) {
    for (const Param* const param : params.find(change.target)) {
      const serve::Service* const service = rules_of(server, *param);
      if (service == nullptr) continue;
      std::string full = service->rules.in_full(*change.value);
      if (full == *change.value) continue;
      Change one = change;
      one.target = param->path();
      one.value = std::move(full);
      records.push_back(print_change(one));
    }
  }
  if (records.empty()) records.push_back(print_change(change));
  return records;
}

// Rules are restored last, after all policies.
std::vector<std::string> restore_rules(serve::Server& server, const std::vector<Change>& changes,
                                       std::vector<std::string>& mistakes) {
  const Params params = server_params(server, moment_at(server.now()));
  std::map<std::string, std::vector<std::string>> commands;  // by service
  std::map<std::string, std::set<std::string>> forgetting;   // records by command
  for (const Change& change : changes) {
    if (!is_rule(change)) continue;
    bool is_known = false;
    for (const Param* const param : params.find(change.target)) {
      const serve::Service* const service = rules_of(server, *param);
      if (service == nullptr) continue;
      is_known = true;
      commands[service->name].push_back(*change.value);
      forgetting[service->rules.in_full(*change.value)].insert(print_change(
          {.kind = Change::Kind::kForget, .target = change.target, .value = change.value}));
    }
    if (!is_known) mistakes.push_back(print_change(change) + ": no such service");
  }
  std::vector<std::string> records;
  for (const auto& [name, kept] : commands) {
    const auto restored = server.find_service(name)->rules.restore(kept, server.now());
    for (const std::string& mistake : restored.mistakes) {
      mistakes.push_back(fmt::format("service {}: {}", quote(name), mistake));
    }
    for (const std::string& conflict : restored.conflicts) {
      const auto& those = forgetting[conflict];
      records.insert(records.end(), those.begin(), those.end());
    }
  }
  return records;
}

}  // namespace

Result<void> ChangeTrial::try_param(const Param& param, const ChangeItem& item) {
  const std::string& value = *item.change.value;
  if (serve::Service* const service = rules_of(server_, param)) {
    auto& trial = rules_[service->name];
    if (trial == nullptr) trial = std::make_unique<KeptRules::Trial>(service->rules);
    is_needed_ = is_needed_ || trial->is_needed(value);
    return trial->apply(value, keeping_of(item));
  }
  // A parameter without a check is an action, not a setting to keep.
  is_needed_ = is_needed_ || param.check != nullptr;
  return param.check ? param.check(value) : Result<void>{};
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
      note({param->path(), param->slashed(), *change.value, {}}, try_param(*param, item));
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
  const Params params = server_params(server, moment, keeping_of(item), &notes);
  std::vector<ParamOutcome> outcomes;
  // The cluster may have started a rule of this name since the check.
  if (const auto allowed = check_own(server, change); !allowed) {
    outcomes.push_back(outcome_of(change));
    outcomes.back().error = allowed.error();
    return outcomes;
  }
  if (change.kind == Change::Kind::kParam) {
    outcomes = write_params(params, change.target, *change.value);
    if (outcomes.empty() && !item.is_for_locks) outcomes.push_back(not_found(change));
    if (!notes.empty()) outcomes.back().note = fmt::format("{}", fmt::join(notes, "; "));
    return outcomes;
  }
  outcomes.push_back(outcome_of(change));
  if (change.kind == Change::Kind::kForget) {
    for (const Param* const param : params.find(change.target)) {
      serve::Service* const service = rules_of(server, *param);
      if (service == nullptr) continue;
      std::optional<std::string> command;
      if (change.value) command = service->rules.in_full(*change.value);
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
