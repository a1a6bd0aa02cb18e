// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rivals/sfq_d.h"

#include <algorithm>
#include <utility>

namespace weir::sim {

SfqD::SfqD(RivalSetup setup, std::uint32_t depth, Depth kind)
    : Rival(std::move(setup)),
      entries_(this->setup().nodes.size()),
      depth_(depth),
      depth_max_(depth),
      kind_(kind),
      level_(depth) {
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].job = static_cast<Job>(i);
}

void SfqD::arrived(Job job, const Request& request, Instant /*now*/) {
  if (&first_of(job) != &request) return;
  if (queued() == 1 && running() == 0) virtual_time_ = latest_finish_;
  Entry& entry = entries_[job];
  entry.start = std::max(virtual_time_, entry.finish);
  queue_.push(entry, entry.start);
}

Rival::Choice SfqD::choose(Instant /*now*/) {
  if (running() >= depth_) return {};
  return {.job = queue_.top().job};
}

void SfqD::started(Job job, Request& request, Instant now) {
  Entry& entry = entries_[job];
  queue_.erase(entry);
  virtual_time_ = entry.start;
  entry.finish = entry.start + (cost_of(request) << kFraction) / setup().nodes[job];
  latest_finish_ = std::max(latest_finish_, entry.finish);
  note_start(request, now);
  if (is_empty(job)) return;
  entry.start = entry.finish;
  queue_.push(entry, entry.start);
}

void SfqD::finished(Job /*job*/, const Request& request, Instant now) {
  if (kind_ == Depth::kFixed) return;
  latency_sum_ += now - since(request);
  ++latencies_;
  if (now >= window_end_) adapt(now);
}

void SfqD::adapt(Instant now) {
  const auto latency = latency_sum_ / static_cast<std::int64_t>(latencies_);
  least_latency_ = std::min(least_latency_, latency);
  const double reference = 1.5 * static_cast<double>(least_latency_.count());
  const double error = (reference - static_cast<double>(latency.count())) / reference;
  level_ = std::clamp(level_ * (1 + error / 2), 1.0, static_cast<double>(depth_max_));
  depth_ = static_cast<std::uint32_t>(level_);
  window_end_ = now + kWindow;
  latency_sum_ = Nanoseconds{0};
  latencies_ = 0;
}

}  // namespace weir::sim
