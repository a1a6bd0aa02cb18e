// SPDX-License-Identifier: Apache-2.0
//
// Rule commands to apply again in order, without those that later commands made redundant:
// rules that were started and then stopped, limits that were changed again. The rest gives the
// same rules, whatever rules it is applied to, as long as no rule that it starts exists
// already.
//
// Each command has a target, for logs that hold commands of several lists. One that could not be
// read is kept as text and makes no other redundant.
//
// Pure. A command costs time in proportion to those of the same rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weir/classify/rule_spec.h"

namespace weir {

class RuleLog {
 public:
  struct Record {
    std::string target;
    RuleOrText command;
  };

  RuleLog() = default;
  RuleLog(const RuleLog& other);
  RuleLog(RuleLog&&) = default;
  RuleLog& operator=(const RuleLog& other);
  RuleLog& operator=(RuleLog&&) = default;
  ~RuleLog() = default;

  void add(std::string_view target, RuleOrText command);
  // Removes the commands of the target that are the same as this one except for spaces; without
  // one, all commands of the target. Returns how many there were.
  std::size_t forget(std::string_view target, const std::optional<RuleOrText>& command);

  // Moves those commands to another target instead.
  void move(std::string_view target, const std::optional<RuleOrText>& command, std::string_view to);

  std::vector<Record> records() const;
  std::size_t size() const { return logged_.size(); }

 private:
  struct Logged {
    Record record;
    std::uint64_t number;

    const RuleChange* change() const { return change_in(record.command); }
    bool is(Verb verb) const { return change() != nullptr && change()->verb == verb; }
    std::string_view name() const {
      return change() != nullptr ? std::string_view(change()->name) : std::string_view();
    }
  };
  using Place = std::list<Logged>::iterator;

  // The positions of commands for the same rule after the last command that could have ended or
  // moved the rule in another way. In doubt everything is kept.
  std::vector<Place> mergeable(const Logged& next) const;
  bool supersede(const Logged& next);
  static bool is_it(const Logged& one, std::string_view target,
                    const std::optional<RuleOrText>& command);
  Place erase(Place place);

  std::list<Logged> logged_;
  std::unordered_map<std::string, std::vector<Place>> by_name_;
  std::set<std::uint64_t> ranked_;  // numbers of commands that put a rule elsewhere
  std::uint64_t next_number_ = 1;
};

}  // namespace weir
