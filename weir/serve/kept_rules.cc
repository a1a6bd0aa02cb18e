// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/kept_rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/rule_text.h"
#include "weir/target/nrs_text.h"

namespace weir::serve {
namespace {

using Origin = RuleBook::Origin;
using Texts = KeptRules::Texts;
// Targets of logged commands.
constexpr std::string_view kKept = "kept";
constexpr std::string_view kTemporary = "temporary";

Result<void> name_rule(Result<void> done, std::string_view rule) {
  if (done) return done;
  Error error = std::move(done.error());
  error.code = std::errc::invalid_argument;  // whoever wrote the options has made a mistake
  error.where =
      fmt::format("rule {}{}{}", quote(rule), error.where.empty() ? "" : ", ", error.where);
  return tl::unexpected(std::move(error));
}

// Names of the rules of `a` that `b` has none of, on any head.
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

// A temporary command on the heads that still have what it did.
std::optional<std::string> left_of(const std::string& command, std::span<const Head> heads) {
  if (heads.size() == kHeads.size()) return command;
  const RuleText text(command);
  for (const Head head : heads) {
    if (!names(text.heads(), head)) continue;
    if (text.heads() != Heads::kBoth) return command;
    return (head == Head::kRegular ? "reg " : "hp ") + command;
  }
  return std::nullopt;
}

// A command that the Target would take, and a book with other rules does not.
tl::unexpected<Error> refuse(const RuleText& text, const RuleBook& book) {
  const auto refused = book.check(text.text);
  if (!refused && refused.error().code == std::errc::no_space_on_device) {
    return tl::unexpected(refused.error());
  }
  if (text.is_start() && book.find(text.name) != nullptr) {
    return fail(std::errc::file_exists, {},
                fmt::format("there is a rule {} already, which is inactive until another policy or "
                            "the next start",
                            quote(text.name)),
                fmt::format("use another name, or end it with: weir rule stop {}", text.name));
  }
  const auto rank = text.find("rank");
  const std::string_view name = rank && book.find(*rank) == nullptr ? *rank : text.name;
  return fail(std::errc::operation_not_permitted, {},
              fmt::format("rule {} is temporary, as it was started without -P", quote(name)),
              "use set_param without -P for this too, or start the rule with weir rule start");
}

}  // namespace

std::string KeptRules::PolicySwitch::message() const {
  std::string text;
  say_of(text, inactive, "kept, but inactive under this policy");
  say_of(text, active, "in force again");
  say_of(text, gone, "gone with the policy (started by set_param without -P)");
  return text;
}

FieldSet KeptRules::type() const {
  for (const Head head : kHeads) {
    if (const RuleView* const rules = target_.rules(head)) return rules->type();
  }
  return FieldSet::all();
}

std::string KeptRules::in_full(std::string_view command) const {
  return weir::in_full(command, type());
}

// ---- at the start ----

Result<void> KeptRules::begin(Texts file, Texts command_line, Instant now) {
  for (Texts* const rules : {&file, &command_line}) {
    const Origin origin = rules == &file ? Origin::kFile : Origin::kCommandLine;
    for (std::string& rule : *rules) {
      if (auto read = name_rule(target_.check_rule_text(rule), rule); !read) return read;
      const std::string written = std::exchange(rule, in_full(rule));
      if (auto done = name_rule(target_.apply_rule(rule, now), written); !done) return done;
      for (RuleBook* const book : {&kept_, &all_, &running_}) {
        const auto noted = book->apply(rule, origin);
        WEIR_ASSERT(noted.has_value());
      }
    }
  }
  file_ = std::move(file);
  command_line_ = std::move(command_line);
  return {};
}

RuleBook KeptRules::fold(const Texts& file, const RuleLog& log, Restored* told) const {
  RuleBook book;
  for (const std::string& rule : file) (void)book.apply(rule, Origin::kFile);
  for (const std::string& rule : command_line_) (void)book.apply(rule, Origin::kCommandLine);
  for (const RuleLog::Record& one : log.records()) {
    const Origin origin = one.target == kTemporary ? Origin::kTemporary : Origin::kKept;
    const auto done = book.apply(one.text, origin, RuleBook::Ranks::kAsFarAsTheyGo);
    if (done || told == nullptr) continue;
    told->mistakes.push_back(quote(one.text) + ": " + done.error().message());
    if (done.error().code == std::errc::file_exists) told->conflicts.push_back(one.text);
  }
  return book;
}

KeptRules::Restored KeptRules::restore(const Texts& commands, Instant now) {
  for (const std::string& command : commands) log_.add(kKept, in_full(command));
  Restored told;
  (void)fold(file_, log_, &told);
  for (const std::string& conflict : told.conflicts) log_.forget(kKept, conflict);
  all_log_ = log_;
  become(commands_between(running_, possible(fold(file_, log_, nullptr))).value_or(Texts{}), now);
  for (const std::string& name : missing(kept_, running_, is_kept)) {
    told.mistakes.push_back("rule " + quote(name) + " is inactive under the policy in force");
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
    return target_.check_rule_text(entry.command()).has_value();
  });
  return part;
}

// What fails all the same, since the cluster has a rule of that name, is inactive.
void KeptRules::become(const Texts& commands, Instant now) {
  for (const std::string& command : commands) {
    if (target_.apply_rule(command, now)) (void)running_.apply(command, Origin::kKept);
  }
  kept_ = fold(file_, log_, nullptr);
  all_ = fold(file_, all_log_, nullptr);
  if (RuleBook wanted = possible(all_); running_ == wanted) running_ = std::move(wanted);
}

bool KeptRules::Trial::is_needed(std::string_view command) const {
  const RuleText text(command);
  return text.verb != "stop" || kept_.find(text.name) != nullptr;
}

// The Target's own refusal comes first, with the errno of a Lustre server.
Result<void> KeptRules::Trial::apply(std::string_view command, Keeping keeping) {
  const std::string full = rules_.in_full(command);
  const bool keeps = keeping == Keeping::kKept;
  const bool is_kept_fine = !keeps || kept_.check(full).has_value();
  const bool is_fine = is_kept_fine && all_.check(full).has_value();
  if (auto tried = trial_.apply(command); !tried) return tried;
  if (!is_fine) return refuse(RuleText(full), is_kept_fine ? all_ : kept_);
  if (keeps) (void)kept_.apply(full, Origin::kKept);
  (void)all_.apply(full, Origin::kTemporary);
  return {};
}

Result<void> KeptRules::apply(std::string_view command, Keeping keeping, Instant now) {
  const std::string full = in_full(command);
  const bool keeps = keeping == Keeping::kKept;
  if ((keeps && !kept_.check(full)) || !all_.check(full)) {
    auto tried = Trial(*this).apply(command, keeping);
    if (!tried) return tried;
  }
  if (auto done = target_.apply_rule(keeps ? full : command, now); !done) return done;
  note(full, keeping);
  return {};
}

// A rule of the cluster is in no book, and what is done to it in no log.
void KeptRules::note(const std::string& command, Keeping keeping) {
  const bool is_needed =
      keeping == Keeping::kKept &&
      (RuleText(command).verb != "stop" || kept_.find(RuleText(command).name) != nullptr);
  const Origin origin = is_needed ? Origin::kKept : Origin::kTemporary;
  (void)running_.apply(command, origin);
  if (!all_.apply(command, origin)) return;
  all_log_.add(is_needed ? kKept : kTemporary, command);
  if (is_needed && kept_.apply(command, origin)) log_.add(kKept, command);
}

void KeptRules::forget(std::optional<std::string_view> command) {
  if (log_.forget(kKept, command).empty()) return;
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
    const auto left = one.target == kKept ? one.text : left_of(one.text, same);
    if (left) all_log_.add(one.target, *left);
  }
  become(commands_between(running_, possible(fold(file_, all_log_, nullptr))).value_or(Texts{}),
         now);
  return PolicySwitch{.inactive = missing(old, running_, is_kept),
                      .active = missing(running_, old, is_kept),
                      .gone = missing(old, running_, is_temporary)};
}

// ---- the file, read again ----

Result<std::optional<Texts>> KeptRules::plan_file(const Texts& file) const {
  Texts full;
  for (const std::string& rule : file) full.push_back(in_full(rule));
  const auto edits = rule_commands(file_, full);
  if (!edits) return std::optional<Texts>();
  for (const std::string& edit : *edits) {
    const RuleText text(edit);
    const RuleBook::Entry* const has = all_.find(text.name);
    const RuleBook::Entry* const entry = has != nullptr ? has : kept_.find(text.name);
    if (entry == nullptr || entry->is_default() || entry->origin == Origin::kFile) continue;
    if (text.is_start()) {
      return fail(std::errc::file_exists, quote(edit),
                  "there is a rule " + quote(text.name) + " already",
                  "stop it first, or use another name in the file");
    }
    return fail(std::errc::operation_not_permitted, "rule " + quote(text.name),
                "is not the file's any more: somebody has stopped that and started another",
                "stop it first, or use another name in the file");
  }
  auto commands = commands_between(running_, possible(fold(full, all_log_, nullptr)));
  if (!commands) return std::optional<Texts>();
  if (auto checked = target_.check_rules(*commands); !checked) {
    return tl::unexpected(checked.error());
  }
  return commands;
}

void KeptRules::follow_file(Texts file, const Texts& commands, Instant now) {
  for (std::string& rule : file) rule = in_full(rule);
  file_ = std::move(file);
  become(commands, now);
}

}  // namespace weir::serve
