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

// `default` among them.
inline constexpr std::size_t kRulesMax = 65536;

class RuleList {
 public:
  explicit RuleList(FieldSet type);
  RuleList(const RuleList&) = delete;
  RuleList& operator=(const RuleList&) = delete;
  ~RuleList();

  FieldSet type() const { return type_; }

  // With the same rules in the same order, which are its own.
  std::unique_ptr<RuleList> copy() const;

  // EEXIST: start of a name that is there. ENOENT: change of one that is not, or no such rule to
  // rank before. EPERM: stop default. ENOSPC: kRulesMax. EINVAL: limits that do not go together, or
  // a command that was read for another type. To stop what is not there succeeds.
  Result<void> check(const RuleCommand& command) const;
  // The same, and then does it. The heads of the command are the caller's business.
  Result<void> apply(const RuleCommand& command);

  // The rule for a request, or nullptr in a layer 1-3 where none fits. REQUIRES: layer < kLayers.
  const Rule* match(const Attributes& attributes, unsigned layer) const;
  // Makes what the next match would else have to make, after the last of some commands.
  void prepare() const;
  // Whether any rule stands in the layer; always for layer 0.
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
  // "NAME\treason": which rule match() gives and why not one before it; "-" for none.
  std::string explain(const Attributes& attributes, unsigned layer) const;

 private:
  using Order = std::list<Rule*>;

  // Where the rules of a layer are found; positions count in list order.
  struct Index {
    std::vector<const Rule*> rules;
    // Rules that a request with this job id may match, and no others by that id.
    std::unordered_map<JobId, std::vector<std::uint32_t>> by_job;
    // Rules that have to be tried whatever the job id is.
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
