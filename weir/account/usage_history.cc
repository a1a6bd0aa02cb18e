// SPDX-License-Identifier: Apache-2.0
#include "weir/account/usage_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weir {
namespace {

using Resolution = UsageHistory::Resolution;
constexpr std::int64_t kFine = UsageHistory::kFineSteps;
constexpr std::int64_t kCoarse = UsageHistory::kCoarseSteps;
constexpr std::int64_t kRatio = UsageHistory::kCoarseStep / UsageHistory::kFineStep;
constexpr std::int64_t kWindow = kCoarse * kRatio;  // seconds

// The part of one of `count` equal steps; the last one gets the remainder.
UsageSums part_of(const UsageSums& sums, std::uint64_t count, bool is_last) {
  const auto part = [&](std::uint64_t sum) { return sum / count + (is_last ? sum % count : 0); };
  return {part(sums.served), part(sums.bytes), part(sums.waited_ns)};
}

std::uint64_t value_of(const UsageStep& step, UsageHistory::Order order) {
  switch (order) {
    case UsageHistory::Order::kServed:
      return step.served();
    case UsageHistory::Order::kBytes:
      return step.bytes();
    case UsageHistory::Order::kWait:
      break;
  }
  return step.waited_us();
}

}  // namespace

UsageSums difference(const UsageSums& now, const UsageSums& before) {
  const bool is_reset =
      now.served < before.served || now.bytes < before.bytes || now.waited_ns < before.waited_ns;
  if (is_reset) return now;
  return {now.served - before.served, now.bytes - before.bytes, now.waited_ns - before.waited_ns};
}

void UsageStep::add(const UsageSums& more) {
  const std::uint64_t bytes_sum = std::min(bytes() + std::min(more.bytes, kMax), kMax);
  const std::uint64_t wait_sum =
      std::min(waited_us() + std::min(more.waited_ns / 1000, kMax), kMax);
  served_ =
      static_cast<std::uint32_t>(std::min(served_ + std::min(more.served, kServedMax), kServedMax));
  bytes_low_ = static_cast<std::uint32_t>(bytes_sum);
  bytes_high_ = static_cast<std::uint16_t>(bytes_sum >> 32);
  wait_low_ = static_cast<std::uint32_t>(wait_sum);
  wait_high_ = static_cast<std::uint16_t>(wait_sum >> 32);
}

void UsageHistory::begin(Instant now) {
  const std::int64_t second = now.time_since_epoch() / kFineStep;
  is_first_ = !std::exchange(has_begun_, true);
  if (is_first_) first_ = now_ = second;
  before_ = now_;
  now_ = std::max(now_, second);
  has_victims_ = false;
  const auto advance = [&](Series& one) {
    one.fine.clear(before_, now_);
    one.coarse.clear(before_ / kRatio, now_ / kRatio);
  };
  for (const auto& one : services_) advance(one->total);
  for (const auto& one : series_) advance(*one);
}

void UsageHistory::total(std::string_view service, const UsageSums& sums) {
  Service* const of = service_for(service);
  if (of == nullptr) return;
  take(of->total, sums, !std::exchange(of->has_total, true));
}

void UsageHistory::add(std::string_view service, std::string_view name, const UsageSums& sums) {
  Service* const of = service_for(service);
  if (of == nullptr || name.size() > kNameMax) return;
  const auto found = of->classes.find(name);
  if (found != of->classes.end()) return take(*found->second, sums, false);
  // While all classes are kept, one that is not known did not exist at the last sample.
  const bool is_new_class = !is_first_ && series_.size() < kSeriesMax;
  if (Series* const made = series_for(*of, name, sums)) take(*made, sums, !is_new_class);
}

void UsageHistory::mark(Instant now, std::string_view text) {
  if (marks_.size() >= kMarksMax) marks_.pop_front();
  marks_.push_back({now, std::string(text.substr(0, kMarkMax))});
}

UsageHistory::Service* UsageHistory::service_for(std::string_view name) {
  for (const auto& one : services_) {
    if (one->name == name) return one.get();
  }
  if (services_.size() >= kServicesMax || name.size() > kNameMax) return nullptr;
  services_.push_back(std::make_unique<Service>(Service{.name = std::string(name)}));
  return services_.back().get();
}

const UsageHistory::Service* UsageHistory::find(std::string_view name) const {
  for (const auto& one : services_) {
    if (one->name == name) return one.get();
  }
  return nullptr;
}

// An empty series for a class; nullptr if those that are kept have waited longer.
UsageHistory::Series* UsageHistory::series_for(Service& service, std::string_view name,
                                               const UsageSums& sums) {
  Series* made = nullptr;
  if (series_.size() < kSeriesMax) {
    made = series_.emplace_back(std::make_unique<Series>()).get();
  } else {
    Series* const least = least_delayed();
    if (least == nullptr) return nullptr;
    if (was_delayed(*least) && sums.waited_ns / 2 <= least->last.waited_ns) return nullptr;
    if (sums.waited_ns == 0) return nullptr;
    victims_.pop_back();
    least->of->classes.erase(least->name);
    *least = {};
    made = least;
  }
  made->name = name;
  made->of = &service;
  service.classes.emplace(made->name, made);
  return made;
}

// Sorted once per sample, and only if there are more classes than places.
UsageHistory::Series* UsageHistory::least_delayed() {
  if (!std::exchange(has_victims_, true)) {
    victims_.clear();
    for (const auto& one : series_) victims_.push_back(one.get());
    const auto key = [&](const Series* one) {
      return std::pair(was_delayed(*one), one->last.waited_ns);
    };
    std::sort(victims_.begin(), victims_.end(), [&](const Series* a, const Series* b) {
      return key(a) != key(b) ? key(a) > key(b) : a->name > b->name;
    });
  }
  return victims_.empty() ? nullptr : victims_.back();
}

bool UsageHistory::was_delayed(const Series& one) const {
  return one.last.waited_ns > 0 && now_ - one.delayed_at < kWindow;
}

// What was done before a line starts is not part of it.
void UsageHistory::take(Series& one, const UsageSums& sums, bool starts_here) const {
  const UsageSums more = starts_here ? UsageSums{} : difference(sums, one.last);
  if (more.waited_ns > 0 || starts_here) one.delayed_at = now_;
  one.last = sums;
  if (more == UsageSums{}) return;
  const std::int64_t count = std::clamp<std::int64_t>(now_ - before_, 1, kWindow);
  for (std::int64_t i = 0; i < count; ++i) {
    const UsageSums part = part_of(more, static_cast<std::uint64_t>(count), i == 0);
    const std::int64_t second = now_ - i;
    if (i < kFine) one.fine.add(second, part);
    if (now_ / kRatio - second / kRatio < kCoarse) one.coarse.add(second / kRatio, part);
  }
}

// The step of the first sample has no difference.
std::size_t UsageHistory::complete(Resolution resolution) const {
  if (resolution == Resolution::kSeconds) {
    return static_cast<std::size_t>(std::min(now_ - first_, kFine));
  }
  const std::int64_t steps = now_ / kRatio - first_ / kRatio;
  return static_cast<std::size_t>(std::min(steps, kCoarse - 1));
}

std::vector<UsageStep> UsageHistory::steps_of(const Series& one, Resolution resolution) const {
  const auto count = static_cast<std::int64_t>(complete(resolution));
  std::vector<UsageStep> steps;
  steps.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = count; i > 0; --i) {
    steps.push_back(resolution == Resolution::kSeconds ? one.fine.get(now_ + 1 - i)
                                                       : one.coarse.get(now_ / kRatio - i));
  }
  return steps;
}

std::optional<UsageHistory::View> UsageHistory::view(std::string_view service,
                                                     Resolution resolution,
                                                     const std::vector<std::string>& names) const {
  const Service* const of = find(service);
  if (of == nullptr) return std::nullopt;
  const bool is_fine = resolution == Resolution::kSeconds;
  View view{.step = is_fine ? kFineStep : kCoarseStep,
            .end = Instant{} + (is_fine ? (now_ + 1) * kFineStep : now_ / kRatio * kCoarseStep),
            .total = steps_of(of->total, resolution),
            .classes = {}};
  for (const std::string& name : names) {
    const auto found = of->classes.find(name);
    if (found == of->classes.end()) continue;
    view.classes.push_back({name, steps_of(*found->second, resolution)});
  }
  return view;
}

std::optional<UsageSums> UsageHistory::last_second(std::string_view service,
                                                   std::string_view name) const {
  const Service* const of = find(service);
  if (of == nullptr || complete(Resolution::kSeconds) == 0) return std::nullopt;
  const auto found = of->classes.find(name);
  if (found == of->classes.end()) return std::nullopt;
  const UsageStep step = found->second->fine.get(now_);
  return UsageSums{step.served(), step.bytes(), step.waited_us() * 1000};
}

std::vector<std::string> UsageHistory::busiest(std::string_view service, Resolution resolution,
                                               Order order, std::size_t count) const {
  const Service* const of = find(service);
  std::vector<std::pair<std::uint64_t, std::string_view>> sums;
  if (of == nullptr) return {};
  for (const auto& [name, series] : of->classes) {
    std::uint64_t sum = 0;
    for (const UsageStep& step : steps_of(*series, resolution)) sum += value_of(step, order);
    if (sum > 0) sums.emplace_back(sum, name);
  }
  std::sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  sums.resize(std::min(sums.size(), count));
  std::vector<std::string> names;
  names.reserve(sums.size());
  std::transform(sums.begin(), sums.end(), std::back_inserter(names),
                 [](const auto& one) { return std::string(one.second); });
  return names;
}

std::size_t UsageHistory::memory() const {
  std::size_t sum = 0;
  const auto add = [&](const Series& one) {
    sum += kSeriesOwn + one.fine.memory() + one.coarse.memory();
  };
  for (const auto& one : services_) {
    add(one->total);
    sum += sizeof(Service);
  }
  for (const auto& one : series_) add(*one);
  for (const Mark& one : marks_) sum += sizeof(Mark) + one.text.size();
  return sum;
}

}  // namespace weir
