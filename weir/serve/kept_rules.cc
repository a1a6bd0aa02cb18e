// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/kept_rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/rule_spec.h"
#include "weir/target/nrs_text.h"

namespace weir::serve {
namespace {

using Origin = RuleBook::Origin;
using Texts = KeptRules::Texts;
using Changes = KeptRules::Changes;
// Targets of logged commands.
constexpr std::string_view kKept = "kept";
constexpr std::string_view kTemporary = "temporary";

tl::unexpected<Error> option_error(Error error, const RuleChange& rule) {
  error.code = std::errc::invalid_argument;
  return tl::unexpected(name_rule(std::move(error), print(rule)));
}

// Names of rules of `a` that `b` does not have, on any head.
template <class Counts>
Texts missing(const RuleBook& a, const RuleBook& b, Counts counts) {
  Texts names;
  for (const RuleBook::Entry& entry : a.entries()) {
    if (!counts(entry) || b.find(entry.name) != nullptr) continue;
    if (names.empty() || names.back() != entry.name) names.push_back(entry.name);
  }
  return names;
}

bool is_kept(const RuleBook::Entry& entry) { return entry.origin != Origin::kTemporary; }
bool is_temporary(const RuleBook::Entry& entry) { return !is_kept(entry); }

void say_of(std::string& text, const Texts& names, std::string_view what) {
  if (names.empty()) return;
  const bool is_one = names.size() == 1;
  text += fmt::format("{}{} {} {} {}", text.empty() ? "" : "; ", is_one ? "rule" : "rules",
                      fmt::join(names, ", "), is_one ? "is" : "are", what);
}

// A temporary change, reduced to the heads that still have its effect.
std::optional<RuleChange> left_of(RuleChange change, std::span<const Head> heads) {
  if (heads.size() == kHeads.size()) return change;
  for (const Head head : heads) {
    if (!names(change.heads, head)) continue;
    change.heads = head == Head::kRegular ? Heads::kRegular : Heads::kHigh;
    return change;
  }
  return std::nullopt;
}

// The error for a change that the Target accepts, but the kept rules do not.
tl::unexpected<Error> refuse(const RuleChange& change, const RuleBook& book) {
  const auto refused = book.check(change);
  if (!refused && refused.error().code == std::errc::no_space_on_device) {
    return tl::unexpected(refused.error());
  }
  if (change.verb == Verb::kStart && book.find(change.name) != nullptr) {
    return fail(std::errc::file_exists, {},
                fmt::format("rule {} already exists and is inactive until the policy changes or "
                            "the server restarts",
                            quote(change.name)),
                fmt::format("use another name, or remove it with: weir rule stop {}", change.name));
  }
  const auto& rank = change.keys.rank;
  const std::string& name = rank && book.find(*rank) == nullptr ? *rank : change.name;
  return fail(std::errc::operation_not_permitted, {},
              fmt::format("rule {} is temporary: it was started without -P", quote(name)),
              "use set_param without -P here too, or start the rule with weir rule start");
}

}  // namespace

std::string KeptRules::PolicySwitch::message() const {
  std::string text;
  say_of(text, inactive, "kept, but inactive under this policy");
  say_of(text, active, "active again");
  say_of(text, gone, "removed with the policy (started by set_param without -P)");
  return text;
}

FieldSet KeptRules::type() const {
  for (const Head head : kHeads) {
    if (const RuleView* const rules = target_.rules(head)) return rules->type();
  }
  return FieldSet::generic();
}

RuleOrText KeptRules::in_full(RuleOrText command) const {
  if (auto* const change = std::get_if<RuleChange>(&command)) {
    *change = weir::in_full(std::move(*change), type());
  }
  return command;
}

Changes KeptRules::all_in_full(Changes changes) const {
  for (RuleChange& one : changes) one = weir::in_full(std::move(one), type());
  return changes;
}

// ---- at the start ----

Result<void> KeptRules::begin(const Changes& file, const Changes& command_line, Instant now) {
  for (const Changes* const rules : {&file, &command_line}) {
    const bool is_file = rules == &file;
    for (const RuleChange& given : *rules) {
      if (const auto bound = target_.check_readable(given); !bound) {
        return option_error(bound.error(), given);
      }
      RuleChange rule = weir::in_full(given, type());
      if (const auto done = target_.apply_rule(rule, now); !done) {
        return option_error(done.error(), given);
      }
      for (RuleBook* const book : {&kept_, &all_, &running_}) {
        const auto noted = book->apply(rule, is_file ? Origin::kFile : Origin::kCommandLine);
        WEIR_ASSERT(noted.has_value());
      }
      (is_file ? file_ : command_line_).push_back(std::move(rule));
    }
  }
  return {};
}

RuleBook KeptRules::fold(const Changes& file, const RuleLog& log, Restored* told) const {
  RuleBook book;
  for (const RuleChange& rule : file) (void)book.apply(rule, Origin::kFile);
  for (const RuleChange& rule : command_line_) (void)book.apply(rule, Origin::kCommandLine);
  for (const RuleLog::Record& one : log.records()) {
    const Origin origin = one.target == kTemporary ? Origin::kTemporary : Origin::kKept;
    const RuleChange& change = std::get<RuleChange>(one.command);
    const auto done = book.apply(change, origin, RuleBook::Ranks::kAsFarAsTheyGo);
    if (done || told == nullptr) continue;
    told->mistakes.push_back(quote(print(change)) + ": " + done.error().message());
    if (done.error().code == std::errc::file_exists) told->conflicts.push_back(change);
  }
  return book;
}

KeptRules::Restored KeptRules::restore(const Changes& commands, Instant now) {
  for (const RuleChange& one : commands) log_.add(kKept, weir::in_full(one, type()));
  Restored told;
  (void)fold(file_, log_, &told);
  for (const RuleChange& conflict : told.conflicts) log_.forget(kKept, conflict);
  all_log_ = log_;
  become(changes_between(running_, possible(fold(file_, log_, nullptr))).value_or(Changes{}), now);
  for (const std::string& name : missing(kept_, running_, is_kept)) {
    told.mistakes.push_back("rule " + quote(name) + " is inactive under the current policy");
  }
  return told;
}

// ---- while it runs ----

RuleBook KeptRules::possible(const RuleBook& book) const {
  std::vector<Head> heads;
  for (const Head head : kHeads) {
    if (target_.rules(head) != nullptr) heads.push_back(head);
  }
  const bool is_one = target_.rules(Head::kRegular) == target_.rules(Head::kHigh);
  RuleBook part =
      book.part(heads, is_one ? RuleBook::Sharing::kTogether : RuleBook::Sharing::kApart);
  part.keep_if([&](const RuleBook::Entry& entry) {
    return target_.check_readable(entry.change()).has_value();
  });
  return part;
}

// A change that fails, because the cluster has a rule of that name, leaves its rule inactive.
void KeptRules::become(const Changes& changes, Instant now) {
  for (const RuleChange& change : changes) {
    if (target_.apply_rule(change, now)) (void)running_.apply(change, Origin::kKept);
  }
  kept_ = fold(file_, log_, nullptr);
  all_ = fold(file_, all_log_, nullptr);
  if (RuleBook wanted = possible(all_); running_ == wanted) running_ = std::move(wanted);
}

bool KeptRules::Trial::is_needed(const RuleChange& change) const {
  return change.verb != Verb::kStop || kept_.find(change.name) != nullptr;
}

// The Target's own error takes precedence, with the errno of a Lustre server.
Result<void> KeptRules::Trial::apply(const RuleChange& change, Keeping keeping) {
  const RuleChange full = weir::in_full(change, rules_.type());
  const bool keeps = keeping == Keeping::kKept;
  const bool is_kept_fine = !keeps || kept_.check(full).has_value();
  const bool is_fine = is_kept_fine && all_.check(full).has_value();
  if (auto tried = trial_.apply(change); !tried) return tried;
  if (!is_fine) return refuse(full, is_kept_fine ? all_ : kept_);
  if (keeps) (void)kept_.apply(full, Origin::kKept);
  (void)all_.apply(full, Origin::kTemporary);
  return {};
}

Result<void> KeptRules::apply(const RuleChange& change, Keeping keeping, Instant now) {
  const RuleChange full = weir::in_full(change, type());
  const bool keeps = keeping == Keeping::kKept;
  if ((keeps && !kept_.check(full)) || !all_.check(full)) {
    auto tried = Trial(*this).apply(change, keeping);
    if (!tried) return tried;
  }
  if (auto done = target_.apply_rule(keeps ? full : change, now); !done) return done;
  note(full, keeping);
  return {};
}

// A rule of the cluster is not part of the kept rules, and its changes are not logged.
void KeptRules::note(const RuleChange& change, Keeping keeping) {
  const bool is_needed = keeping == Keeping::kKept &&
                         (change.verb != Verb::kStop || kept_.find(change.name) != nullptr);
  const Origin origin = is_needed ? Origin::kKept : Origin::kTemporary;
  (void)running_.apply(change, origin);
  if (!all_.apply(change, origin)) return;
  all_log_.add(is_needed ? kKept : kTemporary, change);
  if (is_needed && kept_.apply(change, origin)) log_.add(kKept, change);
}

void KeptRules::forget(const std::optional<RuleOrText>& command) {
  if (log_.forget(kKept, command) == 0) return;
  all_log_.move(kKept, command, kTemporary);
  become({}, {});
}

Result<KeptRules::PolicySwitch> KeptRules::start_policy(std::string_view text, Instant now) {
  std::array<const RuleView*, 2> before{};
  for (const Head head : kHeads) before[static_cast<std::size_t>(head)] = target_.rules(head);
  if (auto started = write_nrs_policies(target_, text, now); !started) {
    return tl::unexpected(started.error());
  }
  std::vector<Head> same;
  for (const Head head : kHeads) {
    if (target_.rules(head) == before[static_cast<std::size_t>(head)]) same.push_back(head);
  }
  if (same.size() == kHeads.size()) return PolicySwitch{};
  const RuleBook old = std::exchange(
      running_,
      running_.part(same, same.empty() ? RuleBook::Sharing::kTogether : RuleBook::Sharing::kApart));
  const RuleLog log = std::exchange(all_log_, {});
  for (const RuleLog::Record& one : log.records()) {
    if (one.target == kKept) {
      all_log_.add(one.target, one.command);
    } else if (auto left = left_of(std::get<RuleChange>(one.command), same)) {
      all_log_.add(one.target, *std::move(left));
    }
  }
  become(changes_between(running_, possible(fold(file_, all_log_, nullptr))).value_or(Changes{}),
         now);
  return PolicySwitch{.inactive = missing(old, running_, is_kept),
                      .active = missing(running_, old, is_kept),
                      .gone = missing(old, running_, is_temporary)};
}

// ---- the file, read again ----

Result<std::optional<Changes>> KeptRules::plan_file(const Changes& file) const {
  const Changes full = all_in_full(file);
  const auto edits = rule_changes(file_, full);
  if (!edits) return std::optional<Changes>();
  for (const RuleChange& edit : *edits) {
    const RuleBook::Entry* const has = all_.find(edit.name);
    const RuleBook::Entry* const entry = has != nullptr ? has : kept_.find(edit.name);
    if (entry == nullptr || entry->is_default() || entry->origin == Origin::kFile) continue;
    if (edit.verb == Verb::kStart) {
      return fail(std::errc::file_exists, quote(print(edit)),
                  "rule " + quote(edit.name) + " already exists",
                  "stop it first, or use another name in the file");
    }
    return fail(
        std::errc::operation_not_permitted, "rule " + quote(edit.name),
        "no longer comes from the file: it was stopped and another rule of that name was started",
        "stop it first, or use another name in the file");
  }
  auto changes = changes_between(running_, possible(fold(full, all_log_, nullptr)));
  if (!changes) return std::optional<Changes>();
  if (auto checked = target_.check_rules(*changes); !checked) {
    return tl::unexpected(checked.error());
  }
  return changes;
}

void KeptRules::follow_file(const Changes& file, const Changes& changes, Instant now) {
  file_ = all_in_full(file);
  become(changes, now);
}

}  // namespace weir::serve
