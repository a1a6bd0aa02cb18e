// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/driver.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace weir::lustre {

Driver::Driver(const Options& options, Tree& tree, Names& names, Save save, Log log,
               std::unique_ptr<RuleController> controller)
    : options_(options),
      tree_(tree),
      names_(names),
      save_(std::move(save)),
      log_(std::move(log)),
      controller_(controller ? std::move(controller)
                             : std::make_unique<RuleController>(options.controller)) {}

Result<void> Driver::round(Instant now) {
  ++counters_.rounds;
  first_error_.reset();
  auto view = look(tree_);
  if (!view) {
    ++counters_.failed_rounds;
    go_blind(now);
    return tl::unexpected(view.error());
  }
  seen_at_ = now;
  is_blind_ = false;
  round_.at = now;
  round_.queued = view->policies.queued();
  round_.busy = view->policies.active();
  see_rules(view->rules);
  count_jobs(*view);
  carry_out(controller_->decide(round_));
  if (first_error_) return tl::unexpected(*first_error_);
  return {};
}

// A limited job would stay limited for as long as the server cannot be read.
void Driver::go_blind(Instant now) {
  is_blind_ = true;
  if (!seen_at_ || now - *seen_at_ < options_.patience || round_.rules.empty()) return;
  if (!remove_all("the server cannot be read")) return;
  round_.rules.clear();
  pretended_.clear();
}

Result<void> Driver::glance(Instant now) {
  if (is_blind_) return {};
  const auto policies = policies_of(tree_);
  if (!policies || policies->tbf() == nullptr) return {};
  ++counters_.glances;
  first_error_.reset();
  carry_out(controller_->glance({now, policies->queued(), policies->active()}));
  if (first_error_) return tl::unexpected(*first_error_);
  return {};
}

// ---- counters ----

void Driver::count_target(const TargetView& target, std::map<JobId, JobCount>& sums) {
  const bool is_first = !last_.contains(target.name);
  std::map<JobId, Last>& last = last_[target.name];
  for (auto& [job, before] : last) before.seen = false;
  for (const JobCounters& job : target.jobs) {
    auto [found, is_new] = last.try_emplace(job.job);
    Last& before = found->second;
    // Times depend on enable_stats_header; two different times mean two entries.
    const bool is_other = before.since_ns && job.since_ns && before.since_ns != job.since_ns;
    const bool began_anew = before.rpcs > job.rpcs || is_other;
    std::uint64_t served = is_new || began_anew ? job.rpcs : job.rpcs - before.rpcs;
    if (is_first) served = 0;  // unknown since when
    before = {.rpcs = job.rpcs, .since_ns = job.since_ns, .seen = true};
    JobCount& sum = sums[job.job];
    if (!sum.known) sum.served = Tokens{0};
    sum.known = true;
    sum.served += Tokens{served};
  }
  for (auto each = last.begin(); each != last.end();) {
    if (each->second.seen) {
      ++each;
      continue;
    }
    // A job that another target still counts is known.
    const auto [sum, is_new] = sums.try_emplace(each->first);
    if (is_new) sum->second.known = false;
    // Its counters are kept: an entry that one read missed continues from them, and a new entry has
    // another start time, or smaller counters.
    each = controller_->is_known(each->first) ? std::next(each) : last.erase(each);
  }
}

void Driver::count_jobs(const View& view) {
  std::map<JobId, JobCount> sums;
  std::uint64_t all = 0;
  bool all_known = !view.targets.empty();
  for (const TargetView& target : view.targets) {
    count_target(target, sums);
    const auto before = last_rpcs_.find(target.name);
    if (!target.rpcs || before == last_rpcs_.end() || *target.rpcs < before->second) {
      all_known = false;
    } else {
      all += *target.rpcs - before->second;
    }
    if (target.rpcs) last_rpcs_[target.name] = *target.rpcs;
  }
  round_.served_all = all_known ? std::optional(Tokens{all}) : std::nullopt;
  round_.jobs.clear();
  round_.jobs.reserve(sums.size());
  counters_.unnamed = 0;
  for (auto& [job, count] : sums) {
    count.job = job;
    count.can_hold = is_expressible(job);
    if (!count.can_hold && count.served > Tokens{0}) ++counters_.unnamed;
    round_.jobs.push_back(count);
  }
  for (const JobDemand& demand : controller_->demands()) {
    if (!demand.known && demand.state != JobDemand::State::kIdle) ++counters_.vanished;
  }
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
  for (const auto& [name, own] : own_rules(table)) {
    // Our name used on another head with other conditions is not our rule.
    const bool is_shared = foreign_.contains(name);
    if (!is_shared && (own.heads != heads || !own.agrees)) {
      ++counters_.repairs;
      note(write(stop_of(name), "CPTs or priorities disagree about it"));
      if (!options_.dry_run) continue;
    }
    if (is_shared) continue;
    used_.insert(name);
    round_.rules.push_back({own.job, own.rate, std::max(1U, own.reach)});
  }
  // The rules that would be in effect now.
  for (const auto& [job, rate] : pretended_) round_.rules.push_back({job, rate, 1});
  std::sort(round_.rules.begin(), round_.rules.end(),
            [](const RuleSeen& a, const RuleSeen& b) { return a.job < b.job; });
}

void Driver::note(const Result<void>& done) {
  if (done) return;
  ++counters_.failed_writes;
  if (!first_error_) first_error_ = done.error();
}

Result<void> Driver::write(const RuleChange& change, std::string_view reason) {
  const std::string command = print(change);
  log_(command, reason);
  if (options_.dry_run) return {};
  auto done = tree_.write(kRulesPath, command);
  if (!done) {
    done.error().where += ": '" + command + "'";
    return done;
  }
  ++counters_.writes;
  return done;
}

void Driver::carry_out(const std::vector<JobRateChange>& changes) {
  write_all(changes);
  for (const JobRateChange& change : changes) apply_to(round_.rules, change);
}

void Driver::write_all(const std::vector<JobRateChange>& changes) {
  // Stops first, because starts may need their room. Names are saved together, before the
  // first start.
  std::vector<std::pair<const JobRateChange*, std::string>> starts;
  for (const JobRateChange& change : changes) {
    const bool is_there =
        std::binary_search(round_.rules.begin(), round_.rules.end(), RuleSeen{change.job, 1, 1},
                           [](const RuleSeen& a, const RuleSeen& b) { return a.job < b.job; });
    const auto name = names_.find(change.job);
    if (!change.rate) {
      if (name && is_there) note(write(stop_of(*name), change.reason));
      pretended_.erase(change.job);
      continue;
    }
    if (options_.dry_run && is_expressible(change.job)) pretended_[change.job] = *change.rate;
    if (is_there && name) {
      RuleKeys keys;
      keys.rate = change.rate;
      const auto done = write(change_of(*name, keys), change.reason);
      if (done || done.error().code != std::errc::no_such_file_or_directory) {
        note(done);
        continue;
      }
    }
    if (!is_expressible(change.job)) continue;
    const auto fresh = names_.name_for(change.job, foreign_, used_);
    if (!fresh) {
      ++counters_.unnamed;
      continue;
    }
    used_.insert(*fresh);
    starts.emplace_back(&change, *fresh);
  }
  if (starts.empty()) return;
  if (names_.is_changed() && !options_.dry_run) {
    const auto saved = save_(names_.print());
    if (!saved) return note(saved);
    names_.keep();
  }
  for (const auto& [change, name] : starts) note(start(*change));
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
  const auto text = tree_.read(kRulesPath);
  if (!text) {
    // Without tbf or without Lustre there are no rules. If only one head runs tbf, they cannot
    // be read.
    if (const auto policies = policies_of(tree_); policies && policies->tbf() != nullptr) {
      if (const auto type = type_of(*policies); !type) return tl::unexpected(type.error());
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
