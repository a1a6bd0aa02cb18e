// SPDX-License-Identifier: Apache-2.0
//
// Rule commands to apply again in order, without those that later commands made redundant:
// rules that were started and then stopped, limits that were changed again. The rest gives the
// same rules, whatever rules it is applied to, as long as no rule that it starts exists
// already.
//
// Each command has a target, for logs that hold commands of several lists. It is kept as written,
// with its parsed form; one that cannot be parsed is kept and makes no other redundant.
//
// Pure. A command costs time in proportion to those of the same rule.
#pragma once

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
    std::string text;
    std::optional<RuleChange> change = {};  // its parsed form
  };

  RuleLog() = default;
  RuleLog(const RuleLog& other);
  RuleLog(RuleLog&&) = default;
  RuleLog& operator=(const RuleLog& other);
  RuleLog& operator=(RuleLog&&) = default;
  ~RuleLog() = default;

  void add(std::string_view target, std::string_view text);
  // Removes and returns the commands of the target that are equivalent to this text, or have this
  // text except for spaces; without a text, all commands of the target.
  std::vector<std::string> forget(std::string_view target, std::optional<std::string_view> text);

  // Moves those commands to another target instead.
  void move(std::string_view target, std::optional<std::string_view> text, std::string_view to);

  std::vector<Record> records() const;
  std::size_t size() const { return logged_.size(); }

 private:
  struct Logged {
    Record record;
    std::uint64_t number;

    bool is(Verb verb) const { return record.change && record.change->verb == verb; }
    std::string_view name() const {
      return record.change ? std::string_view(record.change->name) : std::string_view();
    }
  };
  using Place = std::list<Logged>::iterator;

  // The positions of commands for the same rule after the last command that could have ended or
  // moved the rule in another way. In doubt everything is kept.
  std::vector<Place> mergeable(const Logged& next) const;
  bool supersede(const Logged& next);
  static bool is_it(const Logged& one, std::string_view target,
                    std::optional<std::string_view> text);
  Place erase(Place place);

  std::list<Logged> logged_;
  std::unordered_map<std::string, std::vector<Place>> by_name_;
  std::set<std::uint64_t> ranked_;  // numbers of commands that put a rule elsewhere
  std::uint64_t next_number_ = 1;
};

}  // namespace weir
