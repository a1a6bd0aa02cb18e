// SPDX-License-Identifier: Apache-2.0
//
// A rule: which requests it matches, the key by which it divides them into classes, and the limits
// of each class. Rules live in a RuleList (rule_list.h), which alone creates and changes them.
//
// Code that uses a rule after the call that found it holds a RuleRef. A stopped rule leaves the
// list at once and lives on, unchanged, until its last RuleRef is gone; the number of RuleRefs is
// the `ref` of the listing. A change modifies the rule in place: holders see the new limits at
// once, and version() increases.
//
// Counts are plain integers: a list, its rules and their RuleRefs belong to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "weir/classify/attributes.h"
#include "weir/classify/command.h"
#include "weir/classify/conditions.h"
#include "weir/classify/limits.h"

namespace weir {

class Rule {
 public:
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;

  // Unique among all rules that a list ever had, in the order they were started; `default` has 0.
  std::uint64_t id() const { return id_; }
  // Increases when limits() or by() change.
  std::uint64_t version() const { return version_; }
  const std::string& name() const { return name_; }
  // As written, including its spaces; "*" for `default`.
  const std::string& conds() const { return conds_; }
  const Conditions& conditions() const { return conditions_; }
  // The heads for which it was started.
  Heads heads() const { return heads_; }
  const Limits& limits() const { return limits_; }
  // The key of a class: attributes.only(by()). Empty: one class for the whole rule.
  FieldSet by() const { return by_; }
  std::uint8_t layer() const { return layer_; }
  bool is_default() const { return id_ == 0; }
  // Whether it is still in its list.
  bool is_listed() const { return listed_; }
  std::uint64_t refs() const { return refs_; }

  // Counts a user, like a RuleRef, for holders without room for one. Each retain needs one release,
  // which may delete the rule.
  void retain() const { ++refs_; }
  void release() const;

  // Tests only its conditions: `default` matches nothing, and RuleList::match falls back to it.
  bool matches(const Attributes& attributes) const { return conditions_.matches(attributes); }

  // "<name> <conds> <rate>, ref <n>", as a Lustre server lists it; rate 0: only bytes are limited.
  std::string listing_line() const;

 private:
  friend class RuleList;

  Rule() = default;
  ~Rule() = default;

  std::uint64_t id_ = 0;
  std::uint64_t version_ = 1;
  mutable std::uint64_t refs_ = 0;
  std::string name_;
  std::string conds_;
  Conditions conditions_;
  Limits limits_;
  FieldSet by_;
  Heads heads_ = Heads::kBoth;
  std::uint8_t layer_ = 0;
  bool listed_ = true;
};

// Keeps a rule alive.
class RuleRef {
 public:
  RuleRef() = default;
  explicit RuleRef(const Rule& rule) : rule_(&rule) { rule.retain(); }
  RuleRef(const RuleRef& other) : rule_(other.rule_) {
    if (rule_ != nullptr) rule_->retain();
  }
  RuleRef(RuleRef&& other) noexcept : rule_(std::exchange(other.rule_, nullptr)) {}
  RuleRef& operator=(RuleRef other) noexcept {
    std::swap(rule_, other.rule_);
    return *this;
  }
  ~RuleRef() {
    if (rule_ != nullptr) rule_->release();
  }

  explicit operator bool() const { return rule_ != nullptr; }
  const Rule* get() const { return rule_; }
  const Rule& operator*() const { return *rule_; }
  const Rule* operator->() const { return rule_; }

 private:
  const Rule* rule_ = nullptr;
};

}  // namespace weir
