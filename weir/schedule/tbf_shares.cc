// SPDX-License-Identifier: Apache-2.0
//
// What a controller does to a Tbf: shares, the root bucket, loans.
#include <algorithm>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_set.h>

#include "weir/base/assert.h"
#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_heaps.h"

namespace weir {
bool Tbf::is_share_in_use(const JobId& job, Instant now) const {
  return shares_.is_in_use(job, now);
}

void Tbf::set_share(const JobId& job, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
                    Instant now) {
  WEIR_ASSERT(options_.sharing.has_value());
  Share& share = shares_.of(job);
  if (shares_.set(share, rate, depth, nodes, now) == tbf::Shares::Change::kKind) {
    return enter_again(share, now);
  }
  if (Queue* const first = share.bucket.crowd->first) {
    heaps_->wake.update(*first, wake_time(*first), first->turn());
  }
}

void Tbf::drop_share(const JobId& job, Instant now) {
  if (shares_.drop(job) == tbf::Shares::Change::kNone) return;
  enter_again(*shares_.find(job), now);
}

// Its queues stand elsewhere from now on. Rare: a job that gets its share with its first request
// has no queue with requests yet.
void Tbf::enter_again(Share& share, Instant now) {
  if (share.busy == 0) return;
  std::vector<Queue*> moved;
  for (auto& busy : heaps_->busy) {
    for (Queue& queue : busy) {
      if (queue.share() == &share) moved.push_back(&queue);
    }
  }
  for (Queue* const queue : moved) leave(*queue, now);
  for (Queue* const queue : moved) enter(*queue, now);
}

void Tbf::set_root(const std::optional<RootBucket>& root, Instant now) {
  WEIR_ASSERT(options_.sharing.has_value());
  root_.set(root, now);
}

// Only limits in the same measure as shares count: operations, or bytes.
std::optional<Tokens> Tbf::smallest_limit(Queue& queue, Nanoseconds time, Bucket*& bucket) const {
  const bool in_bytes = options_.sharing->cost.kind() == Cost::Kind::kBytes;
  std::optional<Tokens> smallest;
  queue.each_class([&](Class& used) {
    const Shapes& shapes = used.pace->shapes;
    const auto& shape = in_bytes ? shapes.bytes : shapes.ops;
    if (!shape || (!in_bytes && shapes.cost != options_.sharing->cost)) return;
    const Tokens tokens = tokens_in(shape->rate(), time);
    if (smallest && *smallest <= tokens) return;
    smallest = tokens;
    bucket = in_bytes && shapes.ops ? used.second.get() : &used.main;
  });
  return smallest;
}

void Tbf::report_shares(Nanoseconds time, Instant now,
                        const std::function<void(const ShareReport&)>& visit) {
  absl::flat_hash_map<const Share*, std::optional<Tokens>> limits;
  absl::flat_hash_set<std::pair<const Share*, const Bucket*>> counted;
  for (auto& busy : heaps_->busy) {
    for (Queue& queue : busy) {
      Bucket* bucket = nullptr;
      const auto smallest = smallest_limit(queue, time, bucket);
      auto& sum = limits.try_emplace(queue.share(), Tokens{0}).first->second;
      if (!smallest) {
        sum.reset();
      } else if (sum && counted.emplace(queue.share(), bucket).second) {
        *sum += *smallest;
      }
    }
  }
  shares_.each([&](Share& share) {
    if (!share.active) return;
    tbf::Shares::settle_spill(share, now);
    const auto limit = limits.find(&share);
    visit({share.job, std::exchange(share.borrowed, Tokens{0}),
           std::exchange(share.lent, Tokens{0}),
           limit == limits.end() ? std::nullopt : limit->second});
  });
}

}  // namespace weir
