// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/observer.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/lustre/names.h"

namespace weir::lustre {
namespace {

constexpr std::size_t kOpen = operation_of("open");
constexpr std::size_t kMknod = operation_of("mknod");
constexpr std::uint32_t kTableMax = 1'000'000;
// Requests of a job over which its cost is averaged, at least.
constexpr std::uint64_t kMix = 256;

std::uint64_t grown(std::uint64_t now, std::uint64_t before) {
  return now > before ? now - before : 0;
}

}  // namespace

Result<Costing> Costing::parse(std::string_view text) {
  Costing costing;
  costing.kind = Kind::kTable;
  costing.operations.fill(1);
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    const auto word = [&line] {
      line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
      const std::string_view found = line.substr(0, line.find_first_of(" \t\r"));
      line.remove_prefix(found.size());
      return found;
    };
    const std::string_view name = word();
    if (name.empty()) continue;
    const std::string_view value = word();
    const std::size_t operation = operation_of(name);
    std::uint32_t cost = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), cost);
    const bool is_number = error == std::errc() && end == value.data() + value.size();
    if (operation == kOperationCount) {
      return fail(std::errc::invalid_argument, fmt::format("line {}", number),
                  quote(name) + " is not an operation",
                  fmt::format("use one of {}", fmt::join(kOperations, ", ")));
    }
    if (!is_number || cost == 0 || cost > kTableMax || !word().empty()) {
      return fail(std::errc::invalid_argument, fmt::format("line {}", number),
                  "expected 'OPERATION COST'",
                  fmt::format("a cost is a number from 1 to {}", kTableMax));
    }
    costing.operations[operation] = cost;
  }
  return costing;
}

Observer::Observer(const Service& service, const Costing& costing, Keeps keeps)
    : service_(service), costing_(costing), keeps_(std::move(keeps)) {}

Observer::Target& Observer::target_of(const std::string& name) {
  const auto [found, is_new] = targets_.try_emplace(name);
  if (is_new) found->second.first_kind = (targets_.size() - 1) * kinds();
  return found->second;
}

// Only those that the service serves: others are requests to another service.
Observer::Counts Observer::counts_of(const JobCounters& job) const {
  if (service_.counted == Counted::kBulk) return {job.rpcs};
  Counts counts = job.operations;
  counts.resize(kinds());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (!serves(i)) counts[i] = 0;
  }
  return counts;
}

void Observer::drop_double(Counts& counts) const {
  if (service_.counted == Counted::kBulk) return;
  counts[kMknod] -= std::min(counts[kMknod], counts[kOpen]);
}

void Observer::learn(const TargetView& view, Target& target) {
  const std::vector<RequestTotal> before = std::exchange(target.totals, view.totals);
  target.served.reset();
  if (before.size() != kinds() || view.totals.size() != kinds()) return;
  Counts counts(kinds());
  Counts times(kinds());
  for (std::size_t i = 0; i < kinds(); ++i) {
    if (!serves(i)) continue;
    if (view.totals[i].samples < before[i].samples) return;  // they began anew
    counts[i] = view.totals[i].samples - before[i].samples;
    times[i] = grown(view.totals[i].usecs, before[i].usecs);
  }
  const Counts all = counts;
  drop_double(counts);
  for (std::size_t i = 0; i < kinds(); ++i) {
    if (counts[i] == 0) continue;
    std::uint64_t time = counts[i] == all[i] ? times[i] : times[i] / all[i] * counts[i];
    if (is_table()) time = counts[i] * costing_.operations[i];
    if (costing_.kind == Costing::Kind::kEqual) time = 0;
    costs_.count(target.first_kind + i, counts[i], time);
  }
  target.served = std::move(counts);
}

// None if the totals of a target are not known.
std::optional<Tokens> Observer::served_all(const View& view) {
  std::uint64_t cost = rest_;
  for (const TargetView& each : view.targets) {
    const Target& target = targets_.at(each.name);
    if (!target.served) return std::nullopt;
    for (std::size_t i = 0; i < kinds(); ++i) {
      cost += (*target.served)[i] * costs_.of(target.first_kind + i);
    }
  }
  if (view.targets.empty()) return std::nullopt;
  rest_ = cost % RequestCosts::kOne;
  return Tokens{cost / RequestCosts::kOne};
}

void Observer::count_target(const TargetView& view, Target& target, Instant now,
                            std::map<JobId, Sum>& sums) {
  for (const JobCounters& job : view.jobs) {
    auto [found, is_new] = target.jobs.try_emplace(job.job);
    Last& before = found->second;
    Counts counts = counts_of(job);
    std::uint64_t all = 0;
    for (const std::uint64_t count : counts) all += count;
    // Times depend on enable_stats_header; two different times mean two entries.
    const bool has_times = before.since_ns && job.since_ns;
    const bool is_other = has_times && before.since_ns != job.since_ns;
    const bool began_anew = is_new || is_other || (!has_times && before.sum > all);
    Counts served = counts;
    for (std::size_t i = 0; i < served.size(); ++i) {
      if (!began_anew) served[i] = grown(counts[i], before.counts[i]);
      if (target.is_first) served[i] = 0;  // unknown since when
    }
    drop_double(served);
    const std::uint64_t bytes = began_anew ? job.bytes : grown(job.bytes, before.bytes);
    before = {.counts = std::move(counts),
              .sum = all,
              .bytes = job.bytes,
              .since_ns = job.since_ns,
              .seen_at = now};
    Sum& sum = sums[job.job];
    sum.count.known = true;
    if (!target.is_first) sum.bytes += bytes;
    for (std::size_t i = 0; i < served.size(); ++i) {
      if (served[i] == 0) continue;
      sum.requests += served[i];
      sum.cost += served[i] * costs_.of(target.first_kind + i);
    }
  }
  for (auto each = target.jobs.begin(); each != target.jobs.end();) {
    const Nanoseconds away = now - each->second.seen_at;
    if (away == Nanoseconds{0}) {
      ++each;
      continue;
    }
    const bool is_missed = !keeps_ || keeps_(each->first);
    if (is_missed) {
      // A job that another target still counts is known.
      const auto [sum, is_new] = sums.try_emplace(each->first);
      if (is_new) sum->second.count.known = false;
    }
    const bool is_kept = away < kKeepFor || (keeps_ && is_missed);
    each = is_kept ? std::next(each) : target.jobs.erase(each);
  }
  target.is_first = false;
}

Tokens Observer::tokens_of(const JobId& job, const Sum& sum) {
  constexpr std::uint64_t kOne = RequestCosts::kOne;
  const auto found = prices_.find(job);
  if (found == prices_.end() && sum.cost == sum.requests * kOne) return Tokens{sum.requests};
  Price& price = found == prices_.end() ? prices_[job] : found->second;
  price.requests += sum.requests;
  price.cost += sum.cost;
  if (price.requests > 2 * kMix) {
    // In proportion, so that a round with very many requests leaves no more than kMix either.
    price.cost = static_cast<std::uint64_t>(static_cast<unsigned __int128>(price.cost) * kMix /
                                            price.requests);
    price.requests = kMix;
  }
  const std::uint64_t cost = sum.cost + price.rest;
  price.rest = cost % kOne;
  return Tokens{cost / kOne};
}

std::uint64_t Observer::cost_of(const JobId& job) const {
  const auto found = prices_.find(job);
  if (found == prices_.end() || found->second.requests == 0) return RequestCosts::kOne;
  return std::max<std::uint64_t>(found->second.cost / found->second.requests, 1);
}

void Observer::count(const View& view, Instant now, RuleRound& round) {
  for (const TargetView& target : view.targets) learn(target, target_of(target.name));
  costs_.pass(last_ ? std::max(now - *last_, Nanoseconds{0}) : Nanoseconds{0});
  last_ = now;
  std::map<JobId, Sum> sums;
  for (const TargetView& target : view.targets) {
    count_target(target, targets_.at(target.name), now, sums);
  }
  round.at = now;
  round.queued = view.policies.queued();
  round.busy = view.policies.active();
  round.served_all = served_all(view);
  round.jobs.clear();
  round.jobs.reserve(sums.size());
  unnamed_ = 0;
  served_.clear();
  for (auto& [job, sum] : sums) {
    JobCount& count = sum.count;
    if (sum.requests > 0) served_.push_back({job, sum.requests, sum.bytes});
    count.job = job;
    count.served = tokens_of(job, sum);
    count.cost = cost_of(job);
    count.can_hold = is_expressible(job);
    if (!count.can_hold && count.served > Tokens{0}) ++unnamed_;
    round.jobs.push_back(count);
  }
  std::erase_if(prices_, [&](const auto& price) { return !sums.contains(price.first); });
}

}  // namespace weir::lustre
