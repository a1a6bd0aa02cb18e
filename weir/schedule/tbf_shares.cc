// SPDX-License-Identifier: Apache-2.0
//
// What a controller does to a Tbf: shares, the root bucket, loans.
#include <algorithm>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_set.h>

#include "weir/base/assert.h"
#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_parts.h"

namespace weir {
namespace {

// Of virtual time under shares, a token of a job of one node: fine enough for thousands of nodes,
// since the rest of a division is carried, and enough for decades at a million operations a second.
constexpr std::uint64_t kUnitsPerOp = 4096;
// Loans to the high head go before those to the regular one.
constexpr std::uint64_t kRegularLoan = std::uint64_t{1} << 63;

std::uint64_t units_per_token(const Cost& cost) {
  return cost.kind() == Cost::Kind::kOp ? kUnitsPerOp : 1;
}

}  // namespace

Tbf::Share& Tbf::share_of(const JobId& job) {
  auto& share = shares_[job];
  if (share == nullptr) {
    share = std::make_unique<Share>();
    share->job = job;
    share->bucket.crowd = std::make_unique<Crowd>();
    share->unit = units_per_token(options_.sharing->cost);
  }
  return *share;
}

void Tbf::release(Share& share) {
  if (--share.queues == 0 && !share.active) forget(share);
}

void Tbf::forget(Share& share) {
  if (heaps_->lend.contains(share)) heaps_->lend.erase(share);
  shares_.erase(JobId(share.job));
}

// cost / nodes in units of virtual time; the rest is carried.
std::uint64_t Tbf::weigh(const Share& share, Tokens cost, std::uint64_t& part) {
  using Wide = unsigned __int128;
  const Wide units = Wide{cost.count()} * share.unit + part;
  if (const auto few = static_cast<std::uint64_t>(units); few == units) [[likely]] {
    part = few % share.nodes;  // a long division is several times as long
    return few / share.nodes;
  }
  part = static_cast<std::uint64_t>(units % share.nodes);
  const Wide step = units / share.nodes;
  return step > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(step);
}

// REQUIRES: somebody stands first at its bucket.
void Tbf::offer_loan(Share& share) {
  share.loan_tag = std::max(share.loan_tag, loan_virtual_);
  const bool regular = share.bucket.crowd->first->head == Head::kRegular;
  const std::uint64_t key = share.loan_tag | (regular ? kRegularLoan : 0);
  if (heaps_->lend.contains(share)) {
    heaps_->lend.update(share, key);
  } else {
    heaps_->lend.push(share, key);
  }
}

// What has fallen over the rim is lent if the job had nothing to do, and else nobody's.
void Tbf::settle_spill(Share& share, Instant now) {
  if (!share.paces()) return;
  share.bucket.tokens.trim(*share.shape, now, share.spill);
  const Tokens spilled = share.spill.collect();
  if (share.busy != 0) return;
  // Nothing collects it while the device idles, which may be for months.
  share.lent += std::min(spilled, Tokens{UINT64_MAX} - share.lent);
}

bool Tbf::is_share_in_use(const JobId& job, Instant now) const {
  const auto found = shares_.find(job);
  if (found == shares_.end() || !found->second->paces()) return false;
  const Share& share = *found->second;
  return !share.bucket.tokens.can_take(share.shape->depth(), *share.shape, now);
}

void Tbf::set_share(const JobId& job, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
                    Instant now) {
  WEIR_ASSERT(options_.sharing && nodes > 0, nodes);
  Share& share = share_of(job);
  settle_spill(share, now);
  const bool was_active = share.active;
  const bool was_paced = share.paces();
  if (share.nodes != nodes) {
    share.nodes = nodes;
    share.tag_part = 0;
    share.loan_part = 0;
  }
  if (!rate) {
    share.shape.reset();
  } else {
    const BucketShape shape(*rate, depth);
    if (was_paced) {
      share.bucket.tokens.reshape(*share.shape, shape, now);
      share.spill.reshape(*share.shape, shape);
    } else {
      share.bucket.tokens = TokenBucket::full(shape, now);
      share.spill = {};
    }
    share.shape = shape;
  }
  share.active = true;
  if (was_active && was_paced == share.paces()) {
    if (Queue* const first = share.bucket.crowd->first) {
      heaps_->wake.update(*first, wake_time(*first), first->turn());
    }
  } else {
    enter_again(share, now);
  }
}

void Tbf::drop_share(const JobId& job, Instant now) {
  const auto found = shares_.find(job);
  if (found == shares_.end() || !found->second->active) return;
  Share& share = *found->second;
  share.active = false;
  share.shape.reset();
  share.borrowed = {};
  share.lent = {};
  if (share.queues == 0) return forget(share);
  enter_again(share, now);
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
  if (root && root_shape_) {
    root_.reshape(root_shape_->busy, root->busy, now);
  } else if (root) {
    root_ = TokenBucket::full(root->rested, now);
  }
  root_shape_ = root;
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
  for (const auto& [job, share] : shares_) {
    if (!share->active) continue;
    settle_spill(*share, now);
    const auto limit = limits.find(share.get());
    visit({job, std::exchange(share->borrowed, Tokens{0}), std::exchange(share->lent, Tokens{0}),
           limit == limits.end() ? std::nullopt : limit->second});
  }
}

}  // namespace weir
