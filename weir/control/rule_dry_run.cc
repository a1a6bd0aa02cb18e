// SPDX-License-Identifier: Apache-2.0
#include "weir/control/rule_dry_run.h"

#include <chrono>
#include <utility>
#include <vector>

#include "weir/base/quote.h"
#include "weir/classify/command.h"
#include "weir/control/change_trial.h"
#include "weir/control/json_nlohmann.h"
#include "weir/control/snapshot.h"
#include "weir/schedule/rule_view.h"

namespace weir::control {
namespace {

void add_tested(FieldSet (&tested)[kLayers], const RuleList& list) {
  for (const Rule* const rule : list.rules()) {
    for (const Conditions::Conjunction& one : rule->conditions().conjunctions()) {
      for (const FieldTest& test : one) {
        tested[rule->layer()] = tested[rule->layer()] | FieldSet{test.field};
      }
    }
  }
}

std::string name_under(const Rule& rule, const Attributes& key) {
  return class_name(rule.name(), key, rule.by(), false);
}

}  // namespace

Result<bool> RuleDryRun::step(serve::Server& server) {
  const serve::Service* const service = server.find_service(service_);
  if (service == nullptr) {
    return fail(std::errc::no_such_file_or_directory, "service " + quote(service_), "not found");
  }
  const Target& target = service->target;
  if (!std::exchange(has_begun_, true)) {
    if (auto begun = begin(server, target, server.now()); !begun) {
      return tl::unexpected(begun.error());
    }
    return before_ == nullptr;
  }
  const RuleView* const rules = target.rules(Head::kRegular);
  if (rules == nullptr) return true;  // the policy was changed meanwhile
  const auto visit = [&](const ClassView& view) { see_class(view); };
  const auto next = rules->visit_classes(at_, kStep, server.now(), visit);
  at_ = next.value_or(0);
  return !next;
}

Result<void> RuleDryRun::begin(serve::Server& server, const Target& target, Instant now) {
  const auto tried = ChangeTrial(server, moment_at(now)).apply({.change = change_});
  if (const auto failed = failure_of(tried.outcomes)) return tl::unexpected(*failed);
  const RuleView* const rules = target.rules(Head::kRegular);
  if (rules == nullptr) return {};
  const RuleChange* const rule = change_.rule ? change_in(*change_.rule) : nullptr;
  if (rule == nullptr) {  // the trial has failed with the reason
    return fail(std::errc::invalid_argument, quote(value_text(change_)), "is not a rule command");
  }
  std::vector<std::string> nodemaps;
  for (const serve::NodemapOptions& one : server.options().nodemaps) nodemaps.push_back(one.name);
  const auto bound = weir::bind(*rule, rules->type(), nodemaps_named(std::move(nodemaps)));
  if (!bound) return tl::unexpected(bound.error());
  before_ = rules->rules(Head::kRegular).copy();
  after_ = rules->rules(Head::kRegular).copy();
  if (bound->heads != Heads::kHigh) {
    if (auto done = after_->apply(*bound); !done) return done;
  }
  limits_by_default_ = rules->limits_by_default();
  changes_default_ = rule->name == "default";
  add_tested(tested_, *before_);
  add_tested(tested_, *after_);
  rules->visit_waits(now, [&](const WaitView& wait) {
    if (wait.head != Head::kRegular) return;
    for (unsigned layer = 0; layer < kLayers; ++layer) {
      see(wait.key, before_->match(wait.key, layer), after_->match(wait.key, layer));
    }
  });
  return {};
}

// Whether the fields of a key are enough to match all rules of a layer.
bool RuleDryRun::decides(FieldSet by, unsigned layer) const { return (by | tested_[layer]) == by; }

RuleDryRun::Limit RuleDryRun::limit_of(const Rule* rule, bool limits_by_default) {
  if (rule == nullptr || (rule->is_default() && !limits_by_default)) return {};
  Limit limit{.rate = rule->limits().rate_in_force()};
  if (rule->limits().bps) {
    limit.bps = tokens_in(*rule->limits().bps, std::chrono::seconds{1}).count();
  }
  return limit;
}

void RuleDryRun::see(const Attributes& key, const Rule* before, const Rule* after) {
  const std::string name = before == nullptr ? "" : name_under(*before, key);
  const std::string becomes = after == nullptr ? "" : name_under(*after, key);
  if (before != nullptr) known_.insert(name);
  // A class of another layer, which these requests would have in addition, is listed by its name.
  const std::string& listed = before == nullptr ? becomes : name;
  if (listed.empty()) return;
  Effect effect{becomes, limit_of(before, limits_by_default_),
                limit_of(after, limits_by_default_ || changes_default_)};
  if (becomes == name && effect.before == effect.after) return;
  if (effects_.size() < kListedMax) {
    if (effects_.emplace(listed, std::move(effect)).second) ++affected_;
  } else if (effects_.count(listed) == 0) {
    ++affected_;
  }
}

void RuleDryRun::see_class(const ClassView& view) {
  const Rule* const before = before_->find(view.rule.name());
  if (before == nullptr) return;  // was started meanwhile, or stopped before
  const std::string name = class_name(before->name(), view.key, before->by(), view.is_overflow);
  if (effects_.count(name) != 0) return;
  if (known_.count(name) != 0) {
    ++unchanged_;
    return;
  }
  const unsigned layer = before->layer();
  // A command that changes only limits changes no match.
  const bool keeps_rule = after_->generation() == before_->generation();
  if (view.is_overflow || (!decides(before->by(), layer) && !keeps_rule)) {
    ++undecided_;
    return;
  }
  const std::size_t seen = affected_;
  see(view.key, before, keeps_rule ? after_->find(before->name()) : after_->match(view.key, layer));
  if (affected_ == seen) ++unchanged_;
}

std::string RuleDryRun::json(std::string_view generation) const {
  Json classes = Json::array();
  for (const auto& [name, effect] : effects_) {
    classes.push_back({{"class", name},
                       {"becomes", effect.becomes.empty() ? Json(nullptr) : Json(effect.becomes)},
                       {"rate", effect.before.rate},
                       {"bps", effect.before.bps},
                       {"rate_after", effect.after.rate},
                       {"bps_after", effect.after.bps}});
  }
  return text_of({{"generation", generation},
                  {"command", value_text(change_)},
                  {"has_rules", before_ != nullptr},
                  {"affected", affected_},
                  {"unchanged", unchanged_},
                  {"undecided", undecided_},
                  {"classes", std::move(classes)}});
}

}  // namespace weir::control
