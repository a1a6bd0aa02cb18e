// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/recorder.h"

#include <algorithm>

#include "weir/lustre/server.h"

namespace weir::lustre {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kDay = 86'400'000'000'000;  // ns
// The budget may be exceeded by this fraction of a day, and is kept again only when as much is
// saved, so that the period does not change back and forth.
constexpr std::uint64_t kSlackParts = 100;

// `default` is always there.
std::uint64_t rules_in(const RuleTable& table) {
  std::uint64_t count = 0;
  if (table.regular.empty()) return 0;
  for (const RuleLine& rule : table.regular.front().rules) count += rule.name != "default";
  return count;
}

}  // namespace

Recorder::Recorder(Tree& tree, const Options& options, Instant now)
    : tree_(tree),
      options_(options),
      writer_(options.head, now),
      observer_(*options.service, options.costing),
      start_(now),
      period_(options.head.period) {}

Result<void> Recorder::round(Instant now) {
  auto view = look_only(tree_, *options_.service);
  if (!view) return tl::unexpected(view.error());
  observer_.count(*view, now, round_);
  writer_.add(round_, rules_in(view->rules));
  keep_budget(now);
  return {};
}

void Recorder::glance(Instant now) {
  if (const auto policies = policies_of(tree_, *options_.service)) {
    writer_.glance({now, policies->queued(), policies->active()});
  }
}

void Recorder::keep_budget(Instant now) {
  const auto elapsed = static_cast<std::uint64_t>((now - start_).count());
  const auto due = static_cast<std::uint64_t>(Wide{options_.bytes_per_day} * elapsed / kDay);
  const std::uint64_t slack = options_.bytes_per_day / kSlackParts;
  const std::uint64_t bytes = writer_.bytes();
  if (bytes > due + slack) is_thinning_ = true;
  if (bytes + slack < due) is_thinning_ = false;
  period_ = options_.head.period;
  if (!is_thinning_) return;
  // A tenth longer than the budget allows, to save what was used too much.
  const std::uint64_t a_round = bytes / std::max<std::uint64_t>(writer_.rounds(), 1) + 1;
  const Wide longer = Wide{a_round} * kDay / std::max<std::uint64_t>(options_.bytes_per_day, 1);
  const auto most = static_cast<std::uint64_t>(kPeriodMax.count());
  const auto ns = static_cast<std::uint64_t>(std::min<Wide>(longer * 11 / 10, most));
  period_ = std::max(period_, Nanoseconds{static_cast<std::int64_t>(ns)});
}

}  // namespace weir::lustre
