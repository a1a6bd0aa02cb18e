// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lustre_tbf.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir::sim {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

std::uint64_t since(Instant from, Instant to) {
  return to <= from ? 0 : static_cast<std::uint64_t>((to - from).count());
}

Attributes attributes_of(const Rpc& rpc) {
  Attributes attributes;
  attributes.job = rpc.job;
  return attributes;
}

}  // namespace

LustreTbf::LustreTbf(FieldSet type, std::uint32_t rate, std::uint32_t depth)
    : type_(type), default_rate_(rate), default_depth_(depth), default_(std::make_shared<Rule>()) {
  default_->name = "default";
  default_->conds = "*";
  default_->rate = rate;
  default_->depth = depth;
  rules_.push_back(default_);
}

// ---- rules ----

std::vector<std::shared_ptr<LustreTbf::Rule>>::iterator LustreTbf::find(std::string_view name) {
  return std::find_if(rules_.begin(), rules_.end(),
                      [&](const auto& rule) { return rule->name == name; });
}

Result<void> LustreTbf::apply(const RuleCommand& command) {
  switch (command.verb) {
    case Verb::kStart:
      return start(command);
    case Verb::kChange:
      return change(command);
    case Verb::kStop:
      return stop(command);
  }
  return {};
}

Result<void> LustreTbf::start(const RuleCommand& command) {
  if (find(command.name) != rules_.end()) {
    return fail(std::errc::file_exists, quote(command.name), "a rule of this name exists");
  }
  auto place = rules_.begin();
  if (command.keys.rank) {
    place = find(*command.keys.rank);
    if (place == rules_.end()) {
      return fail(std::errc::no_such_file_or_directory, quote(*command.keys.rank), "no such rule");
    }
  }
  auto rule = std::make_shared<Rule>();
  rule->name = command.name;
  rule->conds = command.conds;
  rule->conditions = command.conditions;
  rule->rate = command.keys.rate.value_or(default_rate_);
  rule->depth = default_depth_;
  rule->realtime = command.keys.realtime.value_or(false);
  rules_.insert(place, std::move(rule));
  ++sequence_;
  return {};
}

Result<void> LustreTbf::change(const RuleCommand& command) {
  const auto found = find(command.name);
  if (found == rules_.end()) {
    return fail(std::errc::no_such_file_or_directory, quote(command.name), "no such rule");
  }
  const std::shared_ptr<Rule> rule = *found;
  if (command.keys.rate) {
    rule->rate = *command.keys.rate;
    ++rule->generation;
  }
  if (!command.keys.rank) return {};
  if (find(*command.keys.rank) == rules_.end()) {
    return fail(std::errc::no_such_file_or_directory, quote(*command.keys.rank), "no such rule");
  }
  if (*command.keys.rank == command.name) return {};
  rules_.erase(found);
  rules_.insert(find(*command.keys.rank), rule);
  return {};
}

Result<void> LustreTbf::stop(const RuleCommand& command) {
  const auto found = find(command.name);
  if (found == rules_.end()) return {};
  if (*found == default_) {
    return fail(std::errc::operation_not_permitted, "'default'", "cannot be stopped");
  }
  (*found)->stopping = true;
  rules_.erase(found);
  return {};
}

std::string LustreTbf::listing() const {
  std::string text;
  for (const auto& rule : rules_) {
    text += fmt::format("{} {} {}, ref {}\n", rule->name, rule->conds, rule->rate, rule->refs);
  }
  return text;
}

// ---- classes ----

std::shared_ptr<LustreTbf::Rule> LustreTbf::match(const Attributes& attributes) const {
  for (const auto& rule : rules_) {
    if (rule != default_ && rule->conditions.matches(attributes)) return rule;
  }
  return default_;
}

void LustreTbf::attach(Class& owner, std::shared_ptr<Rule> rule, Instant now) {
  if (owner.rule != rule) {
    if (owner.rule) --owner.rule->refs;
    owner.rule = std::move(rule);
    ++owner.rule->refs;
  }
  owner.rate = owner.rule->rate;
  owner.nsecs = kSecond / owner.rate;
  owner.depth = owner.rule->depth;
  owner.tokens = owner.depth;
  owner.residual = 0;
  owner.check_time = now;
  owner.generation = owner.rule->generation;
  owner.sequence = sequence_;
}

void LustreTbf::look_again(Class& owner, const Attributes& attributes, Instant now) {
  if (owner.sequence != sequence_ || owner.rule->stopping) {
    std::shared_ptr<Rule> rule = match(attributes);
    // The same rule, not newer: the sequence is not stored, and the next request checks again.
    if (rule == owner.rule && rule->generation == owner.generation) return;
    return attach(owner, std::move(rule), now);
  }
  if (owner.generation != owner.rule->generation) attach(owner, owner.rule, now);
}

void LustreTbf::enqueue(const Rpc& rpc, Instant now) {
  const Attributes attributes = attributes_of(rpc);
  std::unique_ptr<Class>& owner = classes_[rpc.job];
  if (!owner) {
    owner = std::make_unique<Class>();
    attach(*owner, match(attributes), now);
  } else {
    look_again(*owner, attributes, now);
  }
  ++queued_;
  owner->queue.push_back(rpc);
  if (owner->queue.size() > 1) return;
  owner->deadline = owner->check_time + Nanoseconds{static_cast<std::int64_t>(owner->nsecs)};
  ready_.push_back(owner.get());
  if (armed_ && owner->deadline < *armed_) arm(*owner);
}

// ---- tokens ----

LustreTbf::Class* LustreTbf::first() const {
  const auto before = [](const Class* a, const Class* b) {
    return std::pair(a->deadline, a->check_time) < std::pair(b->deadline, b->check_time);
  };
  const auto found = std::min_element(ready_.begin(), ready_.end(), before);
  return found == ready_.end() ? nullptr : *found;
}

void LustreTbf::arm(Class& owner) {
  armed_ = owner.deadline;
  armed_interval_ = Nanoseconds{static_cast<std::int64_t>(owner.nsecs)};
}

std::optional<Rpc> LustreTbf::dequeue(Instant now, bool force) {
  if (armed_) return std::nullopt;  // stopping does not cancel it
  for (;;) {
    Class* const owner = first();
    if (owner == nullptr) return std::nullopt;
    if (auto rpc = try_class(*owner, now, force)) return rpc;
    // A realtime class without tokens lets the next one try at once.
    if (!owner->rule->realtime || first() == owner) {
      owner->deadline = owner->check_time + Nanoseconds{static_cast<std::int64_t>(owner->nsecs)};
      arm(*owner);
      // Whole nanoseconds: at the nominal deadline a token may still be missing by rounding.
      if (*armed_ <= now) armed_ = now + Nanoseconds{1};
      return std::nullopt;
    }
  }
}

std::optional<Rpc> LustreTbf::try_class(Class& owner, Instant now, bool force) {
  using Wide = unsigned __int128;
  const std::uint64_t passed = since(owner.check_time, now);
  std::uint64_t tokens =
      static_cast<std::uint64_t>(Wide{passed} * owner.rate / kSecond) + owner.tokens;
  std::uint64_t residual = owner.residual;
  if (owner.rule->realtime) {
    residual += passed % owner.nsecs;
    if (residual > owner.nsecs) {
      residual -= owner.nsecs;
      ++tokens;
    }
  } else {
    tokens = std::min(tokens, owner.depth);
  }
  if (force && tokens == 0) tokens = 1;
  const Nanoseconds interval{static_cast<std::int64_t>(owner.nsecs)};
  if (tokens == 0) {
    owner.deadline = owner.check_time + interval;
    return std::nullopt;
  }
  Rpc rpc = owner.queue.front();
  owner.queue.pop_front();
  --queued_;
  owner.tokens = tokens - 1;
  owner.check_time = now;
  owner.residual = residual;
  if (owner.queue.empty()) {
    ready_.erase(std::find(ready_.begin(), ready_.end(), &owner));
  } else if (!owner.rule->realtime) {
    owner.deadline = now + interval;
  }
  return rpc;
}

}  // namespace weir::sim
