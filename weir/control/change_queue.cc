// SPDX-License-Identifier: Apache-2.0
#include "weir/control/change_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fnmatch.h>

#include "weir/control/audit.h"
#include "weir/control/change.h"
#include "weir/control/snapshot.h"
#include "weir/serve/event_log.h"

namespace weir::control {
namespace {

// Another parameter of the same change was refused, so none of them is applied.
void refuse_rest(std::vector<ParamOutcome>& outcomes) {
  for (ParamOutcome& outcome : outcomes) {
    if (outcome.error.code != std::errc{}) continue;
    outcome.error = {std::errc::operation_canceled, outcome.path, "was not changed",
                     "another parameter was rejected"};
  }
}

}  // namespace

bool may_be_for_locks(const Change& change) {
  const std::string first = change.target.substr(0, change.target.find('.'));
  return change.kind == Change::Kind::kParam && fnmatch(first.c_str(), "ldlm", 0) == 0;
}

std::string ChangeQueue::name_of(std::uint64_t generation) const {
  return fmt::format("{}-{}", boot_, generation);
}

void ChangeQueue::add(ChangeRequest request, std::string expected, Journalling journalling,
                      const Done& done) {
  if (waiting_.size() >= kWaitingMax) {
    return done(fail(std::errc::resource_unavailable_try_again, "change",
                     "too many changes are queued", "try again later"));
  }
  auto waiting = std::make_shared<Waiting>(Waiting{.request = std::move(request),
                                                   .expected = std::move(expected),
                                                   .journalling = journalling,
                                                   .done = done});
  const auto& changes = waiting->request.changes;
  waiting->is_for_locks.resize(changes.size());
  if (waiting->request.applies && std::any_of(changes.begin(), changes.end(), may_be_for_locks)) {
    waiting->locks = host_.locks();
    for (std::size_t i = 0; i < changes.size(); ++i) {
      waiting->is_for_locks[i] =
          may_be_for_locks(changes[i]) && !waiting->locks.find(changes[i].target).empty();
    }
  }
  waiting_.push_back(std::move(waiting));
  start_next();
}

void ChangeQueue::start_next() {
  if (is_busy_ || waiting_.empty()) return;
  is_busy_ = true;
  const GroupPtr group = take_group();
  host_.ask([this, group](serve::Server& server) { try_group(server, *group); },
            [this, group](const Result<void>& tried) {
              if (!tried) return give_up(tried.error());
              set_locks(*group);
              write_group(group);
            });
}

// The changes that can be tried together: up to a policy change, or that alone.
ChangeQueue::GroupPtr ChangeQueue::take_group() const {
  auto group = std::make_shared<Group>();
  for (const auto& waiting : waiting_) {
    const ChangeRequest& request = waiting->request;
    for (std::size_t i = waiting->next; i < request.changes.size(); ++i) {
      const bool is_alone = is_policy(request.changes[i]);
      if ((is_alone && !group->items.empty()) || group->items.size() >= kGroupMax) return group;
      group->items.push_back({.of = waiting,
                              .item = {.change = request.changes[i],
                                       .is_kept = request.persists,
                                       .is_for_locks = waiting->is_for_locks[i]},
                              .is_first = i == 0});
      if (is_alone) return group;
    }
  }
  return group;
}

// On the loop. Temporary changes are applied one by one, as on a Lustre server.
void ChangeQueue::try_group(serve::Server& server, Group& group) {
  is_unsettled_ = true;
  ChangeTrial trial(server, moment_at(server.now()));
  std::uint64_t generation = generation_;
  for (Item& one : group.items) {
    const std::string& expected = one.of->expected;
    const std::string current = name_of(generation);
    if (one.is_first && !expected.empty() && expected != "*" && expected != current) {
      one.of->answer = {.is_stale = true, .number = generation, .generation = current};
    }
    if (one.is_off()) continue;
    one.tried = trial.apply(one.item);
    one.is_refused = one.item.is_kept && !one.tried.is_done();
    if (one.is_refused) {
      refuse_rest(one.tried.outcomes);
    } else {
      ++generation;
    }
  }
}

// Setting them is the only way to check them. They are restored if the journal cannot be written.
void ChangeQueue::set_locks(Group& group) const {
  for (Item& one : group.items) {
    if (one.is_off() || !one.item.is_for_locks) continue;
    const Change& change = one.item.change;
    auto before = read_params(one.of->locks, change.target);
    one.tried.outcomes = write_params(one.of->locks, change.target, value_text(change));
    one.is_refused = !one.tried.is_done();
    if (one.item.is_kept && one.of->journalling == Journalling::kFirst) {
      std::move(before.begin(), before.end(), std::back_inserter(group.locks_before));
    }
  }
}

void ChangeQueue::write_group(const GroupPtr& group) {
  std::vector<std::string> records;
  for (const Item& one : group->items) {
    if (one.is_off() || one.of->journalling == Journalling::kNone) continue;
    for (const Change& record : one.tried.records) records.push_back(print_change(record));
  }
  if (records.empty()) return carry_out_group(group);
  host_.write(records, [this, group](const Result<void>& written) {
    if (!written) refuse_unwritten(*group, written.error());
    carry_out_group(group);
  });
}

void ChangeQueue::refuse_unwritten(Group& group, const Error& error) const {
  const Error refusal{error.code, error.where, error.what,
                      "nothing was changed; check the journal's disk and try again"};
  for (const ParamOutcome& before : group.locks_before) {
    (void)write_params(host_.locks(), before.path, before.value);
  }
  for (Item& one : group.items) {
    if (one.is_off() || one.tried.records.empty()) continue;
    one.is_refused = true;
    for (ParamOutcome& outcome : one.tried.outcomes) outcome.error = refusal;
  }
}

void ChangeQueue::carry_out_group(const GroupPtr& group) {
  host_.ask(
      [this, group](serve::Server& server) {
        for (Item& one : group->items) {
          if (one.is_off()) continue;
          one.before = state_for(server, one.item.change);
          auto outcomes = carry_out(server, one.item, moment_at(server.now()));
          one.has_failed = failure_of(outcomes).has_value();
          if (!one.has_failed) ++generation_;
          one.after = state_for(server, one.item.change);
          if (!one.item.is_for_locks) one.tried.outcomes.clear();
          one.tried.outcomes.insert(one.tried.outcomes.begin(), outcomes.begin(), outcomes.end());
        }
        group->generation = generation_;
        is_unsettled_ = false;
        for (const auto& change : std::exchange(when_settled_, {})) change();
      },
      [this, group](const Result<void>& done) {
        if (!done) return give_up(done.error());
        take_back(group);
      });
}

// Revokes the records of changes that could not be applied, so that the next start does not apply
// them. The callers get the error, whether this can be written or not.
void ChangeQueue::take_back(const GroupPtr& group) {
  std::vector<std::string> records;
  for (const Item& one : group->items) {
    const bool is_written = !one.is_off() && one.of->journalling == Journalling::kFirst;
    if (!is_written || !one.has_failed) continue;
    for (Change record : one.tried.records) {
      if (!is_rule(record)) continue;
      record.kind = Change::Kind::kForget;
      records.push_back(print_change(record));
    }
  }
  if (records.empty()) return finish_group(*group);
  host_.write(records, [this, group](const Result<void>& written) {
    if (!written) {
      serve::EventLog::say("journal: a rejected change may take effect at the next start: " +
                           written.error().message());
    }
    finish_group(*group);
  });
}

void ChangeQueue::note(const Item& one, std::uint64_t generation) const {
  AuditEntry entry = audit_entry(one.item.change);
  entry.who = one.of->request.who;
  entry.before = one.before;
  entry.after = one.after;
  entry.generation = name_of(generation);
  if (const auto failed = failure_of(one.tried.outcomes)) entry.error = failed->message();
  audit(entry);
}

void ChangeQueue::finish_group(Group& group) {
  for (Item& one : group.items) {
    Waiting& of = *one.of;
    ++of.next;
    if (of.answer.is_stale) continue;
    note(one, group.generation);
    auto& outcomes = one.tried.outcomes;
    std::move(outcomes.begin(), outcomes.end(), std::back_inserter(of.answer.outcomes));
  }
  std::vector<std::shared_ptr<Waiting>> done;
  while (!waiting_.empty() && waiting_.front()->next == waiting_.front()->request.changes.size()) {
    Answer& answer = waiting_.front()->answer;
    if (!answer.is_stale) {
      answer.number = group.generation;
      answer.generation = name_of(group.generation);
    }
    done.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  is_busy_ = false;
  for (const auto& one : done) one->done(one->answer);
  start_next();
}

// The loop has ended, so nothing can be changed any more.
void ChangeQueue::give_up(const Error& error) {
  is_busy_ = false;
  for (const auto& one : std::exchange(waiting_, {})) one->done(tl::unexpected(error));
}

void ChangeQueue::change_elsewhere(const std::function<void()>& change) {
  if (is_unsettled_) {
    when_settled_.push_back([this, change] { change_elsewhere(change); });
    return;
  }
  change();
  ++generation_;
}

}  // namespace weir::control
