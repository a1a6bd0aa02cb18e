// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rivals/lustre_rules.h"

#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/classify/rule_spec.h"

namespace weir::sim {
namespace {

constexpr std::uint32_t kRateDefault = 10'000;
constexpr std::uint32_t kDepth = 3;

}  // namespace

LustreRules::LustreRules(RivalSetup setup)
    : Rival(std::move(setup)), filter_(FieldSet{Field::kJobid}, kRateDefault, kDepth) {
  const RivalSetup& of = this->setup();
  for (std::size_t i = 0; i < of.names.size(); ++i) {
    RuleSpec rule{.name = fmt::format("r{}", i), .conds = conds_for_job(of.names[i])};
    rule.keys.rate =
        static_cast<std::uint32_t>(tokens_in(of.share_of(i), std::chrono::seconds{1}).count());
    const auto command = bind(start_of(std::move(rule)), FieldSet{Field::kJobid});
    WEIR_ASSERT(command.has_value());
    const auto applied = filter_.apply(*command);
    WEIR_ASSERT(applied.has_value());
  }
}

void LustreRules::arrived(Job job, const Request& /*request*/, Instant now) {
  filter_.enqueue({.job = JobId(setup().names[job]), .tag = job}, now);
}

Rival::Choice LustreRules::choose(Instant now) {
  if (filter_.wake() && *filter_.wake() <= now) filter_.fire();
  if (const auto rpc = filter_.dequeue(now, false)) return {.job = static_cast<Job>(rpc->tag)};
  return {.until = filter_.wake().value_or(kNever)};
}

void LustreRules::started(Job /*job*/, Request& /*request*/, Instant /*now*/) {}

}  // namespace weir::sim
