// SPDX-License-Identifier: Apache-2.0
//
// Changes of a Tbf from outside: rule commands, shares and the root, slices of cluster-wide limits,
// and the preferred group of clients. Queues whose place depends on the change leave it first, and
// enter again afterwards.
#include <algorithm>
#include <utility>
#include <vector>

#include "weir/base/assert.h"
#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf/tree_queues.h"

namespace weir {

// Earlier payments are no longer refunded.
void Tbf::change_payers() {
  ++payers_;
  simple_receipt_ = Receipt(payers_, Receipt::kLimits).word();
}

// Every selected queue with requests leaves its place, `between` is called with all of them, and
// they enter again.
template <class Selects, class Between>
void Tbf::enter_again(Selects selects, Between between, Instant now) {
  std::vector<Queue*> moved;
  for (auto& busy : busy_) {
    for (Queue& queue : busy) {
      if (selects(queue)) moved.push_back(&queue);
    }
  }
  for (Queue* const queue : moved) run_.leave(*queue, now);
  between(moved);
  for (Queue* const queue : moved) run_.enter(*queue, now);
}

// ---- rules ----

void Tbf::reshape_changed(Instant now) {
  if (!rules_.is_changing()) return;
  classes_.each(binder_.index(), [&](Class& used) {
    if (used.pace->next) used.reshape(used.pace->shapes, *used.pace->next, now);
  });
  if (rules_.commit()) change_payers();
}

// Affected queues with requests are bound and entered again, the others stay in place; idle ones
// are bound with their next request.
void Tbf::return_changed(Instant now) {
  const auto is_affected = [&](Queue& queue) {
    if (binder_.is_affected(queue)) return true;
    binder_.keep_bound(queue);
    return false;
  };
  const auto change = [&](const std::vector<Queue*>& affected) {
    reshape_changed(now);
    for (Queue* const queue : affected) {
      if (binder_.is_bound(*queue)) continue;
      binder_.bind(*queue, now);
      if (shares_.tree() != nullptr) shares_.tree()->follow(*queue, now);
    }
  };
  enter_again(is_affected, change, now);
  classes_.forget_stopped();
}

// More fields distinguish queues than before: all requests are queued again, in order, in
// new queues.
void Tbf::return_all(FieldSet by, Instant now) {
  std::vector<std::pair<Request*, Head>> requests;
  for (auto& busy : busy_) {
    for (Queue& queue : busy) run_.leave(queue, now);
    while (!busy.empty()) {
      Queue& queue = busy.front();
      while (queue.has_requests()) {
        Request& first = queue.requests.front();
        queue.requests.erase(first);
        queue.part(first);
        requests.emplace_back(&first, queue.head);
      }
      become_idle(queue, now);
    }
  }
  std::sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) {
    return a.first->policy_turn < b.first->policy_turn;
  });
  reshape_changed(now);
  binder_.distinguish_by(by);
  classes_.forget_stopped();
  for (const auto& [request, head] : requests) admit(*request, head, now);
}

Result<void> Tbf::apply(const RuleCommand& command, Instant now) {
  const auto changed = rules_.apply(command, now);
  if (!changed) return tl::unexpected(changed.error());
  if (changed->rebinds) {
    binder_.rules_changed();
    change_payers();
  }
  if (binder_.distinguishes(changed->by)) {
    return_changed(now);
  } else {
    return_all(changed->by, now);
  }
  return {};
}

void Tbf::set_slices(std::span<const ClassSlice> slices, Instant now) {
  bool is_changed = false;
  for (const ClassSlice& one : slices) {
    for (const Head head : kHeads) {
      const Rule* const rule = rules(head).find(one.rule);
      if (rule == nullptr || rule->limits().scope != Scope::kCluster) continue;
      tbf::RuleState& state = rules_.state_of(*rule);
      Class* const used = one.key ? binder_.class_of(state, *one.key) : nullptr;
      if (one.key && used == nullptr) continue;
      tbf::Pace& pace = one.key ? tbf::ClassTable::own_pace(*used, *one.key) : state.pace;
      if (rules_.set_slice(*rule, pace, one.slice)) is_changed = true;
    }
  }
  if (is_changed) return_changed(now);
}

// ---- shares ----

bool Tbf::is_share_in_use(const JobId& job, Instant now) const {
  return shares_.is_in_use(job, now);
}

void Tbf::set_share(const JobId& job, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
                    Instant now) {
  WEIR_ASSERT(options_.sharing.has_value());
  Share& share = shares_.of(job);
  if (shares_.set(share, rate, depth, nodes, now) == tbf::Shares::Change::kKind) {
    return move_queues(share, now);
  }
  if (Queue* const first = share.bucket.waiters->first) run_.bucket_changed(share.bucket, *first);
}

void Tbf::drop_share(const JobId& job, Instant now) {
  if (shares_.drop(job, now) == tbf::Shares::Change::kNone) return;
  move_queues(*shares_.find(job), now);
}

// Moves the queues of the job. Rare: a job that gets its share with its first request has no queue
// with requests yet.
void Tbf::move_queues(Share& share, Instant now) {
  if (share.busy == 0) return;
  enter_again([&](const Queue& queue) { return queue.share() == &share; },
              [](const std::vector<Queue*>&) {}, now);
}

// ---- reservations ----

void Tbf::set_reserve_scale(std::uint32_t scale, Instant now) {
  WEIR_ASSERT(scale > 0 && scale <= kReserveScaleOne, scale);
  if (rules_.set_reserve_scale(scale)) return_changed(now);
}

// ---- groups of clients ----

void Tbf::prefer(std::optional<std::uint32_t> group, Instant now) {
  if (!groups_.prefer(group)) return;
  const auto is_set_back = [&](const Queue& queue) {
    return groups_.is_set_back(queue.extra->group, queue.head);
  };
  enter_again([&](const Queue& queue) { return queue.extra->is_later != is_set_back(queue); },
              [&](const std::vector<Queue*>& moved) {
                for (Queue* const queue : moved) queue->extra->is_later = is_set_back(*queue);
              },
              now);
}

}  // namespace weir
