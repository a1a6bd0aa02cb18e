// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include <fmt/format.h>

#include "weir/adapt/options.h"
#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/command.h"
#include "weir/classify/plain_rates.h"
#include "weir/classify/rule_list.h"
#include "weir/config/serve_config.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"
#include "weir/schedule/policy_kinds.h"
#include "weir/target/nrs_text.h"
#include "weir/target/target.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Bounds = ServeConfigBounds;

// Tries a service's rules on the lists that its heads would have.
class RuleTrial {
 public:
  RuleTrial(const Target& target, const std::vector<serve::NodemapOptions>& nodemaps)
      : nodemaps_(nodemaps) {
    for (const Head head : {Head::kRegular, Head::kHigh}) {
      const RuleView* const rules = target.rules(head);
      if (rules == nullptr) continue;
      type_ = rules->type();
      lists_.at(static_cast<std::size_t>(head)).emplace(type_);
    }
  }

  bool has_rules() const { return lists_[0] || lists_[1]; }

  // Returns the change that the text means.
  Result<RuleChange> apply(std::string_view text) {
    auto command =
        parse_command(text, type_, [this](std::string_view name) { return id_of(name); });
    if (!command) return tl::unexpected(command.error());
    const bool is_state = command->verb == Verb::kStart ||
                          (command->verb == Verb::kChange && command->name == "default");
    if (!is_state) {
      return fail(std::errc::invalid_argument, {}, "not allowed in a configuration",
                  "use start commands, and change for 'default'");
    }
    for (const bool applies : {false, true}) {
      for (const Head head : {Head::kRegular, Head::kHigh}) {
        if (command->heads == (head == Head::kRegular ? Heads::kHigh : Heads::kRegular)) continue;
        auto& list = lists_.at(static_cast<std::size_t>(head));
        if (!list) {
          return fail(std::errc::invalid_argument, {},
                      policies_with_rules() + (head == Head::kRegular
                                                   ? " does not run for regular requests"
                                                   : " does not run for high-priority requests"),
                      "write reg or hp before the command");
        }
        const auto done = applies ? list->apply(*command) : list->check(*command);
        if (!done) return tl::unexpected(done.error());
      }
    }
    return static_cast<RuleChange&&>(*command);
  }

 private:
  std::optional<std::uint32_t> id_of(std::string_view name) const {
    if (name == "default") return 0;
    for (std::uint32_t i = 0; i < nodemaps_.size(); ++i) {
      if (nodemaps_[i].name == name) return i + 1;
    }
    return std::nullopt;
  }

  const std::vector<serve::NodemapOptions>& nodemaps_;
  FieldSet type_;
  std::array<std::optional<RuleList>, 2> lists_;
};

void read_rules(const TomlTable& table, const ServeOptions& options,
                serve::ServiceOptions& service) {
  Target target({}, Instant{});
  if (table.has("policy")) {
    service.policy = table.text("policy", service.policy);
    if (const auto started = write_nrs_policies(target, service.policy, Instant{}); !started) {
      refuse_with(table, table.place_of("policy"), "policy", started.error());
      return;  // rules cannot be checked without it
    }
  } else {
    WEIR_ASSERT(write_nrs_policies(target, service.policy, Instant{}).has_value());
  }
  for (const TomlTable::Item& item : table.texts("tunables")) {
    if (const auto set = set_tunable(target, service.policy, item.text, Instant{}); !set) {
      refuse_with(table, item.at, "tunables", set.error());
    }
    service.tunables.push_back(item.text);
  }
  RuleTrial trial(target, options.nodemaps);
  std::size_t number = 0;
  for (const TomlTable::Item& item : table.texts("rules")) {
    ++number;
    if (!trial.has_rules()) {
      table.refuse("rules", fmt::format("have no effect under {}", quote(service.policy)),
                   "rules require the policy " + policies_with_rules());
      return;
    }
    auto rule = trial.apply(with_plain_rates(item.text));
    if (rule) {
      service.rules.push_back(*std::move(rule));
    } else {
      refuse_with(table, item.at, fmt::format("rule {}", number), rule.error());
    }
  }
}

void read_capacity(const TomlTable& table, serve::ServiceOptions& service) {
  if (const auto value = table.get("capacity")) {
    const auto* number = value->as<std::int64_t>();
    const auto capacity = serve::parse_capacity(number != nullptr ? fmt::format("{}", *number)
                                                                  : table.text("capacity", "auto"));
    if (capacity) {
      service.capacity = *capacity;
    } else {
      refuse_with(table, value->at(), "capacity", capacity.error());
    }
  }
  if (!table.has("cost")) return;
  service.cost = table.cost("cost", Cost::op());
  using Kind = serve::Capacity::Kind;
  const bool is_bytes = service.cost->kind() == Cost::Kind::kBytes;
  if (service.capacity.kind == Kind::kBytes && !is_bytes) {
    table.refuse("cost", "must be 'bytes', since the capacity is in bytes per second");
  } else if (service.capacity.kind == Kind::kOps && is_bytes) {
    table.refuse("cost", "cannot be 'bytes', since the capacity is in operations per second",
                 "give the capacity a unit, such as '100MB/s'");
  }
}

void read_slots(const TomlTable& table, serve::ServiceOptions& service) {
  const auto given = table.get("slots");
  const auto* word = given ? given->as<std::string>() : nullptr;
  const bool is_auto = word != nullptr && *word == "auto";
  if (is_auto) {
    service.slots = serve::kSlotsAuto;
  } else if (given) {
    service.slots = table.small("slots", serve::kSlotsDefault, 1, Bounds::kSlotsMax);
  }
  service.hp_slots = table.small("hp_slots", 0, 0, Bounds::kSlotsMax);
  const std::uint32_t slots =
      is_auto ? Bounds::kSlotsMax : service.slots.value_or(serve::kSlotsDefault);
  if (service.hp_slots >= slots) {
    table.refuse("hp_slots", fmt::format("must be less than slots, which is {}", slots));
  }
  if (!table.has("latency_target")) return;
  service.latency_target = table.time("latency_target", Bounds::kLatencyTargetMin,
                                      Bounds::kLatencyTargetMin, Bounds::kLatencyTargetMax);
  if (!is_auto) table.refuse("latency_target", "needs slots = \"auto\"");
}

}  // namespace

void read_service(const TomlTable& table, ServeOptions& options) {
  if (!has_room(table, options.services, Bounds::kServicesMax)) return;
  serve::ServiceOptions service;
  service.name = plain_name(table, service.name);
  if (is_named_before(options.services, service.name)) {
    table.refuse("name", "is used twice");
  }
  read_rules(table, options, service);
  using serve::Adaptive;
  constexpr std::array<Adaptive, 3> kAdaptives = {Adaptive::kOff, Adaptive::kOn, Adaptive::kPaper};
  service.adaptive = kAdaptives.at(
      table.word("adaptive", static_cast<std::size_t>(service.adaptive), {"off", "on", "paper"}));
  read_capacity(table, service);
  read_slots(table, service);
  service.classes =
      table.small("classes", service.classes, Bounds::kClassesMin, Bounds::kClassesMax);
  if (table.has("period")) {
    service.period = table.time("period", ControllerOptions{}.period, ControllerOptions::kPeriodMin,
                                ControllerOptions::kPeriodMax);
    if (service.adaptive == Adaptive::kOff) {
      table.refuse("period", "has no effect with adaptive = 'off'");
    }
  }
  options.services.push_back(std::move(service));
}

}  // namespace weir::config
