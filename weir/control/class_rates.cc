// SPDX-License-Identifier: Apache-2.0
#include "weir/control/class_rates.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "weir/schedule/rule_view.h"

namespace weir::control {
namespace {

UsageSums sums_of(const ClassTotals& totals) {
  return {totals.served, totals.bytes, totals.waited_ns};
}

// The queues of a class together.
struct Waits {
  DelaySums delays{};
  std::uint64_t waiting = 0;
};

// Of the queues of each class, by the name of the class.
std::unordered_map<std::string, Waits> waits_of(const ServiceSnapshot& service) {
  std::unordered_map<std::string_view, FieldSet> keys;  // by rule
  for (const ClassSnapshot& one : service.classes) keys.emplace(one.rule, one.by);
  std::unordered_map<std::string, Waits> waits;
  for (std::size_t i = 0; i < service.waits.size() && i < service.wait_rules.size(); ++i) {
    const WaitView& wait = service.waits[i];
    if (wait.head != Head::kRegular) continue;
    for (const std::string& rule : service.wait_rules[i]) {
      const auto by = keys.find(rule);
      if (by == keys.end()) continue;
      Waits& sums = waits[class_name(rule, wait.key, by->second, false)];
      sums.waiting += wait.waiting;
      for (std::size_t cause = 0; cause < kDelays; ++cause) {
        sums.delays[cause] += wait.delays[cause];
      }
    }
  }
  return waits;
}

std::string_view main_cause(const DelaySums& delays) {
  const auto most = std::max_element(delays.begin(), delays.end());
  return *most == 0 ? "" : delay_name(static_cast<Delay>(most - delays.begin()));
}

// Whether the requests of a class have waited lately, as far as that is known.
bool has_waited(const RecentUsage& recent, const Waits& waits) {
  return waits.waiting > 0 || recent.window_ns == 0 ||
         recent.sums.waited_ns / ClassRates::kShortWait > recent.sums.served;
}

}  // namespace

void ClassRates::update(Snapshot& shot, const UsageHistory& history) {
  const Instant now = shot.moment.now;
  const bool has_base = older_.at != kNever && now > older_.at && now - older_.at <= kWindowMax;
  const bool is_kept = newer_.at == kNever || now - newer_.at >= kWindowMin;
  Sample sample{.at = now, .sums = {}};
  if (is_kept) sample.sums.resize(shot.services.size());
  for (std::size_t i = 0; i < shot.services.size(); ++i) {
    ServiceSnapshot& service = shot.services[i];
    const auto waits = waits_of(service);
    for (ClassSnapshot& one : service.classes) {
      const std::string name = one.name();
      const UsageSums sums = sums_of(one.totals);
      if (has_base && i < older_.sums.size()) {
        const auto before = older_.sums[i].find(name);
        const bool is_known = before != older_.sums[i].end();
        one.recent = {.sums = difference(sums, is_known ? before->second : UsageSums{}),
                      .window_ns = static_cast<std::uint64_t>((now - older_.at).count())};
      } else if (const auto last = history.last_second(service.name, name)) {
        one.recent = {.sums = *last, .window_ns = UsageHistory::kFineStep.count()};
      }
      const auto found = waits.find(name);
      if (found != waits.end() && has_waited(one.recent, found->second)) {
        one.cause = main_cause(found->second.delays);
      }
      if (is_kept) sample.sums[i].emplace(name, sums);
    }
  }
  if (!is_kept) return;
  older_ = std::exchange(newer_, std::move(sample));
  if (older_.at == kNever) older_ = newer_;
}

}  // namespace weir::control
