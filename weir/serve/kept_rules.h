// SPDX-License-Identifier: Apache-2.0
//
// The rules that a service should have, next to those that its Target has now. A Target forgets its
// rules with its policy, as a Lustre server does; these are kept, inactive, until tbf is back.
//
//   rules of the file, of the command line, kept commands (journal, API, weir rule)  --> kept()
//      and between the latter, since the policy was started, temporary ones          --> all()
//      of which the current policy can have                                          --> running()
//
// Commands of `lctl set_param` without -P are temporary: they end with the policy. So after any
// number of commands, reloads and policies the Target has the rules that a new start with the same
// file, command line and journal would give it, but for the temporary commands since the policy was
// started.
//
// A kept command must therefore be possible without the temporary ones too; otherwise it is
// rejected. Rules of the cluster are started by the cluster and are not among these.
//
// Every change of rules and policies goes through here, or the Target and this disagree. On the
// loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/rule_log.h"
#include "weir/schedule/rule_book.h"
#include "weir/target/target.h"

namespace weir::serve {

class KeptRules {
 public:
  enum class Keeping : std::uint8_t { kTemporary, kKept };
  using Texts = std::vector<std::string>;
  using Changes = std::vector<RuleChange>;

  // Names of rules.
  struct PolicySwitch {
    Texts inactive;  // kept rules that the policy before had and this one cannot have
    Texts active;    // kept rules that are in force again
    Texts gone;      // temporary rules

    // "rules a, b are inactive ..."; empty if nothing became of any rule.
    std::string message() const;
  };

  explicit KeptRules(Target& target) : target_(target) {}

  // ---- at the start ----

  // Starts the rules of the file and the command line. The error names the rule.
  Result<void> begin(const Texts& file, const Texts& command_line, Instant now);
  // The kept commands of earlier runs, after begin(). What cannot be applied any more is told;
  // starts of rules that the file or the command line have now are in `conflicts` besides, and
  // forgotten.
  struct Restored {
    Texts mistakes;
    Texts conflicts;
  };
  Restored restore(const Texts& commands, Instant now);

  // ---- while it runs ----

  // What commands would do, one after the other, if nothing else happened.
  class Trial {
   public:
    explicit Trial(const KeptRules& rules)
        : rules_(rules), trial_(rules.target_.rule_trial()), kept_(rules.kept_), all_(rules.all_) {}
    Result<void> apply(std::string_view command, Keeping keeping);
    // Whether the next start needs it: not if it stops what would not be there.
    bool is_needed(std::string_view command) const;

   private:
    const KeptRules& rules_;
    Gate::RuleTrial trial_;
    RuleBook kept_;
    RuleBook all_;
  };

  // A rule command as written. EEXIST, ENOENT, EPERM also for what is inactive or temporary.
  Result<void> apply(std::string_view command, Keeping keeping, Instant now);
  // How a kept command is to be written down, so that it means the same under other types.
  std::string in_full(std::string_view command) const;
  // The kept commands with this text, or all, are temporary from now on.
  void forget(std::optional<std::string_view> command);
  // As written to nrs_policies. On failure nothing has changed.
  Result<PolicySwitch> start_policy(std::string_view text, Instant now);

  // ---- the file, read again ----

  // What it takes to have these rules of the file instead; nothing if that takes a restart. EEXIST:
  // one of them has the name of another rule; EPERM: one that is changed is not the file's any
  // more.
  Result<std::optional<Changes>> plan_file(const Texts& file) const;
  // Carries it out. REQUIRES: the changes are those of the plan, and nothing else has changed
  // since.
  void follow_file(const Texts& file, const Changes& changes, Instant now);

  // ---- to look at ----

  // What a restart would show, active or not.
  const RuleBook& kept() const { return kept_; }
  // With temporary commands.
  const RuleBook& all() const { return all_; }
  // What the Target has of these.
  const RuleBook& running() const { return running_; }

 private:
  RuleBook fold(const Changes& file, const RuleLog& log, Restored* told) const;
  // Rules of the file, which was checked when it was read.
  Result<Changes> read_file(const Texts& file) const;
  // What the heads can have of a book now.
  RuleBook possible(const RuleBook& book) const;
  // Folds both logs anew and carries out what leads there.
  void become(const Changes& changes, Instant now);
  void note(const RuleChange& change, Keeping keeping);
  FieldSet type() const;

  Target& target_;
  Changes file_;
  Changes command_line_;
  RuleLog log_;      // kept commands
  RuleLog all_log_;  // with the temporary ones between them
  RuleBook kept_;
  RuleBook all_;
  RuleBook running_;
};

}  // namespace weir::serve
