// SPDX-License-Identifier: Apache-2.0
//
// The rules that a service should have, next to those that its Target has now. A Target loses its
// rules with its policy, as a Lustre server does; these are kept, inactive, until tbf runs again.
//
//   rules of the file, of the command line, kept commands (journal, API, weir rule)  --> kept()
//      and, among the latter, temporary ones since the policy was started            --> all()
//      of these, those that the current policy can have                              --> running()
//
// Commands of `lctl set_param` without -P are temporary: they end with the policy. So after any
// number of commands, reloads and policies the Target has the rules that a new start with the same
// file, command line and journal would give it, except for the temporary commands since the policy
// was started.
//
// A kept command must therefore be possible without the temporary ones too; otherwise it is
// rejected. Rules of the cluster are managed by the cluster and are not part of this.
//
// Every change of rules and policies must be made through this class; otherwise the Target and this
// would differ. Used on the loop.
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
    Texts inactive;  // kept rules of the previous policy that this one cannot have
    Texts active;    // kept rules that are in effect again
    Texts gone;      // temporary rules

    // "rules a, b are inactive ..."; empty if no rule was affected.
    std::string message() const;
  };

  explicit KeptRules(Target& target) : target_(target) {}

  // ---- at the start ----

  // Starts the rules of the file and the command line. The error names the rule.
  Result<void> begin(const Changes& file, const Changes& command_line, Instant now);
  // The kept commands of earlier runs, after begin(). Commands that can no longer be applied are
  // reported; starts of rules that the file or the command line now has are also listed in
  // `conflicts`, and dropped.
  struct Restored {
    Texts mistakes;
    Changes conflicts;
  };
  Restored restore(const Changes& commands, Instant now);

  // ---- while it runs ----

  // The result of commands, one after the other, if nothing else happened.
  class Trial {
   public:
    explicit Trial(const KeptRules& rules)
        : rules_(rules), trial_(rules.target_.rule_trial()), kept_(rules.kept_), all_(rules.all_) {}
    Result<void> apply(const RuleChange& change, Keeping keeping);
    // Whether the next start needs it: false if it stops a rule that would not exist.
    bool is_needed(const RuleChange& change) const;

   private:
    const KeptRules& rules_;
    Gate::RuleTrial trial_;
    RuleBook kept_;
    RuleBook all_;
  };

  // EEXIST, ENOENT, EPERM also for inactive or temporary rules.
  Result<void> apply(const RuleChange& change, Keeping keeping, Instant now);
  // The change in a form that means the same under other types; text is unchanged.
  RuleOrText in_full(RuleOrText command) const;
  // The kept commands that are the same as this one, or all, become temporary.
  void forget(const std::optional<RuleOrText>& command);
  // As written to nrs_policies. On failure nothing changes.
  Result<PolicySwitch> start_policy(std::string_view text, Instant now);

  // ---- reload of the file ----

  // The changes that lead to these rules of the file; none if a restart is needed. EEXIST: one of
  // them has the name of another rule; EPERM: a changed rule no longer comes from the file.
  Result<std::optional<Changes>> plan_file(const Changes& file) const;
  // Applies it. REQUIRES: the changes are those of the plan, and nothing else has changed since.
  void follow_file(const Changes& file, const Changes& changes, Instant now);

  // ---- reading ----

  // The rules after a restart, active or not.
  const RuleBook& kept() const { return kept_; }
  // Including temporary commands.
  const RuleBook& all() const { return all_; }
  // Those that the Target has.
  const RuleBook& running() const { return running_; }

 private:
  RuleBook fold(const Changes& file, const RuleLog& log, Restored* told) const;
  Changes all_in_full(Changes changes) const;
  // The rules of a book that the heads can have now.
  RuleBook possible(const RuleBook& book) const;
  // Recomputes both books and applies these changes.
  void become(const Changes& changes, Instant now);
  void note(const RuleChange& change, Keeping keeping);
  FieldSet type() const;

  Target& target_;
  Changes file_;
  Changes command_line_;
  RuleLog log_;      // kept commands
  RuleLog all_log_;  // including temporary ones, in order
  RuleBook kept_;
  RuleBook all_;
  RuleBook running_;
};

}  // namespace weir::serve
