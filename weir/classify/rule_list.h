// SPDX-License-Identifier: Apache-2.0
//
// The ordered rules of a tbf policy of one type, for one priority.
//
//   match order ->   newest   ...   oldest   default
//
// `start` puts a rule first, or with rank=Y directly before Y. In each layer the first
// matching rule applies. `default` always exists and cannot be stopped; it applies if no
// other rule of layer 0 matches, whatever its position. A layer 1-3 without a match sets no
// limit.
//
// A command applies completely or not at all. check() reports beforehand whether apply() would
// succeed, for commands that go to two lists; use a copy() to check several commands in a row.
//
// generation() increases with every change that can affect a match: start, stop, change of rank,
// layer or key. While it is unchanged, so is the result of every match. A change of limits
// increases only the version() of the rule.
//
// Rules for literal job ids are found by a hash of the id; other rules are tried in order. The
// index is built by prepare(), or else by the first match after a command, in time proportional to
// all items of all rules; otherwise a match allocates nothing. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/attributes.h"
#include "weir/classify/command.h"
#include "weir/classify/rule.h"

namespace weir {

// Including `default`.
inline constexpr std::size_t kRulesMax = 65536;

class RuleList {
 public:
  explicit RuleList(FieldSet type);
  RuleList(const RuleList&) = delete;
  RuleList& operator=(const RuleList&) = delete;
  ~RuleList();

  FieldSet type() const { return type_; }

  // A copy with the same rules in the same order.
  std::unique_ptr<RuleList> copy() const;

  // EEXIST: start of an existing name. ENOENT: change of a rule that does not exist, or a rank
  // that does not exist. EPERM: stop of default. ENOSPC: kRulesMax. EINVAL: limits that
  // contradict each other, or a command that was parsed for another type. Stopping a rule that
  // does not exist succeeds.
  Result<void> check(const RuleCommand& command) const;
  // Checks the command and applies it. The caller handles the heads of the command.
  Result<void> apply(const RuleCommand& command);

  // The rule for a request, or nullptr if no rule of a layer 1-3 matches. REQUIRES: layer
  // < kLayers.
  const Rule* match(const Attributes& attributes, unsigned layer) const;
  // Builds the index that the next match would have to build; call it after the last of
  // several commands.
  void prepare() const;
  // Whether the layer has any rule; always true for layer 0.
  bool has_layer(unsigned layer) const { return counts_[layer] != 0; }

  std::uint64_t generation() const { return generation_; }

  // By name, or nullptr.
  const Rule* find(std::string_view name) const;
  const Rule& default_rule() const { return **default_; }
  // In list order, `default` included.
  std::vector<const Rule*> rules() const;
  std::size_t size() const { return order_.size(); }

  // One line for each rule, in list order, each ending in a newline.
  std::string listing() const;
  // "NAME\treason": the rule that match() returns, and why earlier rules do not match; "-"
  // for none.
  std::string explain(const Attributes& attributes, unsigned layer) const;

 private:
  using Order = std::list<Rule*>;

  // Index of the rules of a layer; positions are in list order.
  struct Index {
    std::vector<const Rule*> rules;
    // Rules that a request with this job id may match, found only by this id.
    std::unordered_map<JobId, std::vector<std::uint32_t>> by_job;
    // Rules that must be tried for every job id.
    std::vector<std::uint32_t> tried;
  };

  Result<void> check_start(const RuleCommand& command) const;
  Result<void> check_change(const RuleCommand& command) const;
  void start(const RuleCommand& command);
  void change(const RuleCommand& command);
  void stop(const RuleCommand& command);
  void drop(Rule* rule);
  const Index& index_of(unsigned layer) const;

  FieldSet type_;
  Order order_;
  std::unordered_map<std::string_view, Order::iterator> by_name_;  // views of Rule::name_
  Order::iterator default_;
  std::size_t counts_[kLayers] = {};
  std::uint64_t next_id_ = 1;
  std::uint64_t generation_ = 1;
  mutable Index indexes_[kLayers];
  mutable std::uint64_t indexed_generation_[kLayers] = {};
};

}  // namespace weir
