// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/driver.h"

#include <algorithm>

#include <fmt/format.h>

#include "weir/base/quote.h"

namespace weir::lustre {

Driver::Driver(const Options& options, Tree& tree, Names& names, Save save, Log log,
               std::unique_ptr<RuleController> controller)
    : options_(options),
      tree_(tree),
      names_(names),
      save_(std::move(save)),
      log_(std::move(log)),
      controller_(controller ? std::move(controller)
                             : std::make_unique<RuleController>(options.controller)),
      observer_(*options.service, options.costing,
                [this](const JobId& job) { return controller_->is_known(job); }) {}

Result<void> Driver::round(Instant now) {
  ++counters_.rounds;
  first_error_.reset();
  auto view = look(tree_, *options_.service);
  if (!view) {
    ++counters_.failed_rounds;
    go_blind(now);
    return tl::unexpected(view.error());
  }
  // After so long the guard has removed our rules.
  const Nanoseconds away = seen_at_ ? now - *seen_at_ : Nanoseconds{0};
  const bool was_away = seen_at_ && away >= options_.patience;
  seen_at_ = now;
  is_blind_ = false;
  observer_.count(*view, now, round_);
  count_limits(away, now);
  count_parts();
  see_rules(view->rules);
  miss_rules(now, was_away ? Missing::kExpected : Missing::kStolen);
  for (JobCount& job : round_.jobs) job.can_hold = job.can_hold && !is_yielding(job.job);
  counters_.unnamed = observer_.unnamed();
  for (const JobDemand& demand : controller_->demands()) {
    if (!demand.known && demand.state != JobDemand::State::kIdle) ++counters_.vanished;
  }
  carry_out(controller_->decide(round_), now);
  write_limits(now);
  if (first_error_) return tl::unexpected(*first_error_);
  return {};
}

// A limited job would stay limited for as long as the server cannot be read.
void Driver::go_blind(Instant now) {
  is_blind_ = true;
  if (!seen_at_ || now - *seen_at_ < options_.patience) return;
  if (round_.rules.empty() && rates_.empty()) return;
  if (!remove_all("the server cannot be read")) return;
  round_.rules.clear();
  rates_.clear();
  pretended_.clear();
  holds_.clear(now);
}

Result<void> Driver::glance(Instant now) {
  if (is_blind_) return {};
  const auto policies = policies_of(tree_, *options_.service);
  if (!policies || policies->tbf() == nullptr) return {};
  ++counters_.glances;
  first_error_.reset();
  carry_out(controller_->glance({now, policies->queued(), policies->active()}), now);
  write_limits(now);
  if (first_error_) return tl::unexpected(*first_error_);
  return {};
}

// ---- rules ----

std::map<std::string, Driver::Own> Driver::own_rules(const RuleTable& table) {
  std::map<std::string, Own> own;
  foreign_.clear();
  for (const auto* head : {&table.regular, &table.high}) {
    for (const RuleTable::Cpt& cpt : *head) {
      for (const RuleLine& rule : cpt.rules) {
        const auto job = names_.owner(rule.name, rule.conds);
        if (!job) {
          foreign_.insert(rule.name);
          continue;
        }
        auto [found, is_new] = own.try_emplace(rule.name);
        Own& mine = found->second;
        if (is_new) {
          mine.job = *job;
          mine.rate = rule.rate;
        }
        mine.agrees = mine.agrees && mine.rate == rule.rate;
        ++mine.heads;
        if (head == &table.regular && rule.refs > 0) ++mine.reach;
      }
    }
  }
  return own;
}

void Driver::see_rules(const RuleTable& table) {
  const auto heads = static_cast<std::uint32_t>(table.regular.size() + table.high.size());
  round_.rules.clear();
  used_.clear();
  rates_.clear();
  repaired_.clear();
  for (const auto& [name, own] : own_rules(table)) {
    // Our name used on another head with other conditions is not our rule.
    const bool is_shared = foreign_.contains(name);
    if (!is_shared && (own.heads != heads || !own.agrees)) {
      ++counters_.repairs;
      repaired_.insert(own.job);
      note(write(stop_of(name), "CPTs or priorities disagree about it"));
      if (!options_.dry_run) continue;
    }
    if (is_shared) continue;
    rates_[name] = own.rate;
    used_.insert(name);
    // Of a capped job the controller sees the rate that it has asked for.
    std::uint32_t rate = own.rate;
    if (is_capped(own.job)) {
      const auto wished = wished_.find(own.job);
      if (wished == wished_.end()) continue;
      rate = *wished->second.rate;
    }
    round_.rules.push_back({own.job, token_rate(own.job, rate), std::max(1U, own.reach)});
  }
  // The rules that would be in effect now.
  for (const auto& [job, rate] : pretended_) {
    const auto wished = wished_.find(job);
    if (is_capped(job) && wished == wished_.end()) continue;
    round_.rules.push_back({job, token_rate(job, is_capped(job) ? *wished->second.rate : rate), 1});
  }
  std::sort(round_.rules.begin(), round_.rules.end(),
            [](const RuleSeen& a, const RuleSeen& b) { return a.job < b.job; });
}

void Driver::note(const Result<void>& done) {
  if (done) return;
  ++counters_.failed_writes;
  if (!first_error_) first_error_ = done.error();
}

void Driver::note(const JobId& job, const Result<void>& done) {
  if (!done) unwritten_.insert(job);
  note(done);
}

Result<void> Driver::write(const RuleChange& change, std::string_view reason) {
  const std::string command = print(change);
  log_(command, reason);
  if (options_.dry_run) return {};
  auto done = tree_.write(options_.service->rules, command);
  if (written_) {
    const auto before = rates_.find(change.name);
    written_({.command = command,
              .reason = reason,
              .before = before == rates_.end() ? std::nullopt : std::optional(before->second),
              .after = change.keys.rate,
              .error = done ? nullptr : &done.error(),
              .round = counters_.rounds});
  }
  if (!done) {
    done.error().where += ": '" + command + "'";
    return done;
  }
  ++counters_.writes;
  if (change.keys.rate) {
    rates_[change.name] = *change.keys.rate;
  } else {
    rates_.erase(change.name);
  }
  return done;
}

std::uint32_t Driver::rule_rate(const JobId& job, std::uint32_t tokens) const {
  const std::uint64_t cost = observer_.cost_of(job);
  const std::uint64_t rate = (std::uint64_t{tokens} * RequestCosts::kOne + cost / 2) / cost;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rate, 1, RuleController::kRateMax));
}

std::uint32_t Driver::token_rate(const JobId& job, std::uint32_t rate) const {
  const std::uint64_t tokens =
      (rate * observer_.cost_of(job) + RequestCosts::kOne / 2) / RequestCosts::kOne;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tokens, 1, UINT32_MAX));
}

void Driver::carry_out(const std::vector<JobRateChange>& changes, Instant now) {
  std::vector<JobRateChange> written = changes;
  for (JobRateChange& change : written) {
    apply_to(round_.rules, change);
    if (change.rate) change.rate = rule_rate(change.job, *change.rate);
  }
  // Those of capped jobs are written with their caps.
  std::erase_if(written, [this](const JobRateChange& change) {
    if (!is_capped(change.job)) return false;
    if (change.rate) {
      wished_.insert_or_assign(change.job, change);
    } else {
      wished_.erase(change.job);
    }
    return true;
  });
  write_changes(written, now);
}

void Driver::write_changes(const std::vector<JobRateChange>& changes, Instant now) {
  write_all(changes);
  for (const JobRateChange& change : changes) {
    if (!unwritten_.contains(change.job)) holds_.change(change, now);
  }
}

// ---- limits of a cluster ----

bool Driver::is_capped(const JobId& job) const { return capped_.contains(job); }

// After a time in which the guard may have removed our rules, what jobs were served is known, but
// not that they could have been served less.
void Driver::count_limits(Nanoseconds away, Instant now) {
  if (limits_ == nullptr) return;
  if (away >= options_.patience) {
    limits_->skip(now);
  } else {
    limits_->count(observer_.served(), now);
  }
}

// The lower of what the limits allow and what the controller wants; none: neither limits it.
void Driver::write_limit(const JobId& job, Instant now) {
  const auto cap = limits_->caps().find(job);
  const auto wished = wished_.find(job);
  JobRateChange change{.job = job, .rate = std::nullopt, .reason = "no limit holds for it"};
  if (wished != wished_.end()) change = wished->second;
  if (cap != limits_->caps().end() && (!change.rate || cap->second.rate < *change.rate)) {
    change.rate = cap->second.rate;
    change.reason = fmt::format("limit {}: {} a second of it are this server's",
                                quote(cap->second.rule), cap->second.per_second);
  }
  const auto name = names_.find(job);
  const auto now_in_force = rate_of(job, name.value_or(std::string()));
  if (change.rate == now_in_force) return;
  if (change.rate && is_yielding(job)) return;
  write_changes({change}, now);
}

void Driver::write_limits(Instant now) {
  if (limits_ == nullptr) return;
  for (const auto& each : limits_->caps()) {
    const JobId& job = each.first;
    if (!capped_.insert(job).second) continue;
    // It may be held already.
    const auto held = std::find_if(round_.rules.begin(), round_.rules.end(),
                                   [&](const RuleSeen& rule) { return rule.job == job; });
    if (held == round_.rules.end()) continue;
    wished_.insert_or_assign(job, JobRateChange{job, rule_rate(job, held->rate), "it is held"});
  }
  for (auto each = capped_.begin(); each != capped_.end();) {
    write_limit(*each, now);
    const bool is_over = !limits_->caps().contains(*each);
    if (is_over) wished_.erase(*each);
    each = is_over ? capped_.erase(each) : std::next(each);
  }
}

const JobLimits::Cap* Driver::limit_of(const JobId& job) const {
  if (limits_ == nullptr) return nullptr;
  const auto cap = limits_->caps().find(job);
  const Hold* const hold = holds_.find(job);
  const bool holds = cap != limits_->caps().end() && hold != nullptr && hold->rate;
  return holds && *hold->rate >= cap->second.rate ? &cap->second : nullptr;
}

Result<void> Driver::apply_limits(Instant now) {
  if (is_blind_ || !seen_at_) return {};
  first_error_.reset();
  write_limits(now);
  if (first_error_) return tl::unexpected(*first_error_);
  return {};
}

// ---- parts of jobs ----

std::uint64_t Driver::nodes_of(const JobId& job) const {
  if (parts_ == nullptr) return controller_->nodes_of(job);
  const auto found = nodes_.find(job);
  return found == nodes_.end() ? 1 : found->second;
}

Result<void> Driver::set_nodes(const JobId& job, std::uint64_t nodes) {
  if (parts_ == nullptr) return controller_->set_nodes(job, nodes);
  if (nodes == 0 || nodes > Allocator::kNodesMax / ShareParts::kWhole) {
    return controller_->set_nodes(job, 0);  // which says what is wrong
  }
  nodes_[job] = nodes;
  return {};
}

void Driver::forget_nodes(const JobId& job) {
  if (parts_ == nullptr) return controller_->forget_nodes(job);
  nodes_.erase(job);
}

// Of what a job uses on all servers, its part here counts.
void Driver::count_parts() {
  if (parts_ == nullptr) return;
  parts_->count(observer_.served());
  for (const JobCount& count : round_.jobs) {
    if (count.served == Tokens{0}) continue;
    const std::uint64_t weight =
        std::max<std::uint64_t>(nodes_of(count.job) * parts_->part_of(count.job), 1);
    const auto [found, is_new] = weights_.try_emplace(count.job, weight);
    if (!is_new && found->second == weight) continue;
    found->second = weight;
    (void)controller_->set_nodes(count.job, weight);
  }
  if (weights_.size() <= 2 * std::max<std::size_t>(round_.jobs.size(), 64)) return;
  std::erase_if(weights_, [this](const auto& entry) {
    if (controller_->is_known(entry.first)) return false;
    controller_->forget_nodes(entry.first);
    return true;
  });
}

// ---- rules that others stop ----

bool Driver::is_yielding(const JobId& job) const {
  const auto found = stolen_.find(job);
  return found != stolen_.end() && found->second.until.has_value();
}

// Jobs that were held after the last round and have no rule now. A server that was restarted has
// lost all rules, once; an administrator, or another program, who wants a job to run free stops its
// rule again and again.
void Driver::miss_rules(Instant now, Missing missing) {
  for (auto each = stolen_.begin(); each != stolen_.end();) {
    Stolen& stolen = each->second;
    const bool is_over = stolen.until ? now >= *stolen.until : now - stolen.since > kStolenTime;
    each = is_over ? stolen_.erase(each) : std::next(each);
  }
  if (holds_.held() == 0) return;
  for (const Holds::OfJob& held : holds_.list(now)) {
    if (!held.hold.since) continue;
    if (is_in_force(held.job, names_.find(held.job))) continue;
    holds_.change({held.job, std::nullopt, "its rule is no longer on the server"}, now);
    if (missing == Missing::kExpected || repaired_.contains(held.job)) continue;
    ++counters_.stolen;
    Stolen& stolen = stolen_.try_emplace(held.job, Stolen{0, now, {}}).first->second;
    if (++stolen.times < kStolenMax) continue;
    stolen.until = now + kYieldFor;
    news_.push_back(fmt::format(
        "the rule of job {} was stopped {} times by another program or an administrator; the job "
        "is left alone for {} minutes",
        quote(held.job.text()), kStolenMax,
        std::chrono::duration_cast<std::chrono::minutes>(kYieldFor).count()));
  }
}

// Of its rule, as written; in a dry run, as it would have been.
std::optional<std::uint32_t> Driver::rate_of(const JobId& job, const std::string& name) const {
  if (options_.dry_run) {
    const auto found = pretended_.find(job);
    return found == pretended_.end() ? std::nullopt : std::optional(found->second);
  }
  const auto found = rates_.find(name);
  return found == rates_.end() ? std::nullopt : std::optional(found->second);
}

// Stops first, because starts may need their room. Names are saved together, before the first
// start.
void Driver::write_all(const std::vector<JobRateChange>& changes) {
  std::vector<const JobRateChange*> starts;
  unwritten_.clear();
  for (const JobRateChange& change : changes) {
    const auto name = names_.find(change.job);
    const bool is_there = is_in_force(change.job, name);
    if (!change.rate) {
      if (name && is_there) note(change.job, write(stop_of(*name), change.reason));
      pretended_.erase(change.job);
      continue;
    }
    // Different rates in tokens may be the same for requests that cost more; writing it again would
    // only give free tokens.
    const bool is_converted = observer_.cost_of(change.job) != RequestCosts::kOne;
    if (is_converted && is_there && name && rate_of(change.job, *name) == change.rate) continue;
    if (is_there && name) {
      RuleKeys keys;
      keys.rate = change.rate;
      const auto done = write(change_of(*name, keys), change.reason);
      if (done || done.error().code != std::errc::no_such_file_or_directory) {
        note(change.job, done);
        if (options_.dry_run) pretended_[change.job] = *change.rate;
        continue;
      }
    }
    if (is_named(change.job)) {
      starts.push_back(&change);
    } else {
      unwritten_.insert(change.job);
    }
  }
  if (starts.empty()) return;
  if (names_.is_changed() && !options_.dry_run) {
    if (const auto saved = save_(names_.print()); !saved) {
      for (const JobRateChange* change : starts) unwritten_.insert(change->job);
      return note(saved);
    }
    names_.keep();
  }
  for (const JobRateChange* change : starts) {
    if (options_.dry_run) pretended_[change->job] = *change->rate;
    note(change->job, start(*change));
  }
}

bool Driver::is_in_force(const JobId& job, const std::optional<std::string>& name) const {
  const bool is_on_server = name && rates_.contains(*name);
  return is_on_server || (options_.dry_run && pretended_.contains(job));
}

// Gives the job a name, if it can have one and may be held.
bool Driver::is_named(const JobId& job) {
  if (!is_expressible(job) || is_yielding(job)) return false;
  const auto name = names_.name_for(job, foreign_, used_);
  if (name) {
    used_.insert(*name);
  } else {
    ++counters_.unnamed;
  }
  return name.has_value();
}

Result<void> Driver::start(const JobRateChange& change) {
  const std::string name = *names_.find(change.job);
  RuleChange command = start_of({.name = name, .conds = conds_of(change.job)});
  command.keys.rate = change.rate;
  command.keys.rank = "default";
  auto done = write(command, change.reason);
  if (done) return done;
  // It may have succeeded on some heads, or exist from a write that seemed to fail.
  const bool is_there = done.error().code == std::errc::file_exists;
  const auto stopped = write(stop_of(name), "its start failed");
  if (is_there && stopped) return write(command, change.reason);
  return done;
}

Result<void> Driver::remove_all(std::string_view reason) {
  const auto text = tree_.read(options_.service->rules);
  if (!text) {
    // Without tbf or without Lustre there are no rules. If only one head runs tbf, they cannot
    // be read.
    if (const auto policies = policies_of(tree_, *options_.service);
        policies && policies->tbf() != nullptr) {
      if (const auto type = type_of(*policies, *options_.service); !type)
        return tl::unexpected(type.error());
    }
    const std::errc code = text.error().code;
    const bool nothing_there =
        code == std::errc::no_such_device || code == std::errc::no_such_file_or_directory;
    return nothing_there ? Result<void>{} : tl::unexpected(text.error());
  }
  const auto table = parse_rules(*text);
  if (!table) return tl::unexpected(table.error());
  first_error_.reset();
  for (const auto& [name, own] : own_rules(*table)) {
    if (!foreign_.contains(name)) note(write(stop_of(name), reason));
  }
  if (first_error_) return tl::unexpected(*first_error_);
  return {};
}

}  // namespace weir::lustre
