// SPDX-License-Identifier: Apache-2.0
//
// A rule command that is tried and not made: which classes it would change, and the limits that
// they would have then. The body of POST /v1/services/NAME/rules with "dry_run".
//
//   RuleDryRun run(change, "ost_io");
//   on the loop:  while (!*run.step(server)) { give way to requests }
//   elsewhere:    run.json(generation)
//
// The first step copies the rules before and after the command; later ones match classes with both
// lists. Requests are in queues, which are known with all their fields for up to 1,024 of them; a
// class has only the fields of its key. A class whose key does not decide which rule matches, and
// of which no queue is known, is counted as undecided and not guessed.
//
// Rules of the high-priority head are checked, but their classes are not listed. One thread at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/classify/rule_list.h"
#include "weir/control/change.h"
#include "weir/serve/server.h"

namespace weir::control {

class RuleDryRun {
 public:
  static constexpr std::size_t kStep = 1024;       // classes
  static constexpr std::size_t kListedMax = 1000;  // classes; others are counted

  // A limit of 0 is none.
  struct Limit {
    std::uint64_t rate = 0;
    std::uint64_t bps = 0;
    bool operator==(const Limit&) const = default;
  };
  // A class, and the one in which its requests would be; empty: none in this layer.
  struct Effect {
    std::string becomes;
    Limit before;
    Limit after;
  };

  RuleDryRun(Change change, std::string service)
      : change_(std::move(change)), service_(std::move(service)) {}

  // True: all classes were visited. The error is that of the command. REQUIRES: on the loop.
  Result<bool> step(serve::Server& server);
  std::string json(std::string_view generation) const;

 private:
  Result<void> begin(serve::Server& server, const Target& target, Instant now);
  void see(const Attributes& key, const Rule* before, const Rule* after);
  void see_class(const ClassView& view);
  bool decides(FieldSet by, unsigned layer) const;
  static Limit limit_of(const Rule* rule, bool limits_by_default);

  Change change_;
  std::string service_;
  bool has_begun_ = false;
  bool limits_by_default_ = true;  // before the command
  bool changes_default_ = false;
  std::unique_ptr<RuleList> before_;  // nullptr: the policy has no rules
  std::unique_ptr<RuleList> after_;
  FieldSet tested_[kLayers];  // by the rules of a layer, before or after
  std::size_t at_ = 0;

  std::map<std::string, Effect> effects_;  // by class
  std::set<std::string> known_;            // classes whose queues were seen
  std::size_t affected_ = 0;
  std::size_t unchanged_ = 0;
  std::size_t undecided_ = 0;
};

}  // namespace weir::control
