// SPDX-License-Identifier: Apache-2.0
//
// The components of a Tbf without the Tbf, so that each can be tested on its own.
//
//   Parts parts;
//   parts.rule("start a jobid={a} rate=10");
//   Queue& queue = parts.queue("a");        bound, with one request that waits
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "weir/base/assert.h"
#include "weir/classify/command.h"
#include "weir/schedule/tbf/binder.h"
#include "weir/schedule/tbf/run_queue.h"

namespace weir::tbf {

inline RuleOptions few_classes(std::size_t most = 8) {
  RuleOptions options;
  options.classes_max = most;
  return options;
}

struct Parts {
  explicit Parts(const RuleOptions& given = few_classes()) : options(given) {}
  ~Parts() {
    for (Queue* const queue : busy) {
      while (queue->has_requests()) queue->requests.erase(queue->requests.front());
      if (queue->place != Queue::Place::kIdle) run.leave(*queue, instant_at(0));
      binder.become_idle(*queue);
    }
  }

  static FieldSet type() { return {Field::kJobid}; }
  RuleTable::Change rule(std::string_view text, Instant now = instant_at(0)) {
    const auto changed = rules.apply(*parse_command(text, type()), now);
    WEIR_ASSERT(changed.has_value());
    if (changed->rebinds) binder.rules_changed();
    return *changed;
  }
  Queue& idle_queue(const std::string& job, Head head = Head::kRegular,
                    Instant now = instant_at(0)) {
    Attributes attributes;
    attributes.job = JobId(job);
    return binder.find(attributes, head, now);
  }
  // Waiting requests of a queue that is in no place yet.
  Queue& queue(const std::string& job, int count = 1, Head head = Head::kRegular) {
    Queue& queue = idle_queue(job, head);
    if (!queue.has_requests()) {
      binder.become_busy(queue);
      busy.push_back(&queue);
    }
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.policy_turn = requests.size();
      queue.requests.push_back(request);
    }
    return queue;
  }

  RuleOptions options;
  RuleTable rules{type(), options};
  ClassTable classes{rules};
  Groups groups{options.groups};
  Shares shares{options.sharing};
  Root root;
  WaitBreakdown waits{options.watched_queues};
  Tags tags{options.sharing};
  std::deque<Request> requests;
  Binder binder{type(), options, rules, classes, shares, groups, waits, 1};
  RunQueue run{options, tags, shares, waits, root};
  std::deque<Queue*> busy;
};

}  // namespace weir::tbf
