// SPDX-License-Identifier: Apache-2.0
//
// Read-only views of a Tbf: its classes, the causes of waits, the use of shares, and what classes
// could use of cluster-wide limits.
#include <algorithm>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "weir/schedule/tbf.h"

namespace weir {
namespace {

const Rule* rule_of(const tbf::Class& used) {
  return used.state()->listed[used.is_listed[0] ? 0 : 1];
}

// Whether it is the overflow class of its rule.
bool is_overflow(const tbf::LoneClass& lone) {
  const FieldSet by = lone.state()->by;
  return !by.empty() && lone.by == tbf::overflow_key(by);
}

void count_waiting(const tbf::Queue& queue, const Rule& rule, Nanoseconds time, ClassLoad& load) {
  const Limits& limits = rule.limits();
  const std::uint32_t rate = limits.rate_in_force();
  const std::uint64_t ops = rate == 0 ? 0 : tokens_in(Rate::per_second(rate), time).count();
  const std::uint64_t bytes = limits.bps ? tokens_in(*limits.bps, time).count() : 0;
  for (const Request* request = &queue.requests.front(); request != nullptr;
       request = queue.requests.behind(*request)) {
    const bool is_enough =
        (rate == 0 || load.waiting > ops) && (!limits.bps || load.waiting_bytes > bytes);
    if (is_enough) return;
    load.waiting += limits.cost.of(request->bytes).count();
    load.waiting_bytes += request->bytes.count();
  }
}

// The smallest limit of the queue and its bucket. Only limits in the unit of shares count:
// operations, or bytes.
std::optional<Tokens> smallest_limit(tbf::Queue& queue, const Cost& measure, Nanoseconds time,
                                     tbf::Bucket*& bucket) {
  const bool in_bytes = measure.kind() == Cost::Kind::kBytes;
  std::optional<Tokens> smallest;
  queue.each_class([&](tbf::Class& used) {
    const tbf::Shapes& shapes = used.pace->shapes;
    const auto& shape = in_bytes ? shapes.bytes : shapes.ops;
    if (!shape || (!in_bytes && shapes.cost != measure)) return;
    const Tokens tokens = tokens_in(shape->rate(), time);
    if (smallest && *smallest <= tokens) return;
    smallest = tokens;
    bucket = in_bytes && shapes.ops ? used.second.get() : &used.main;
  });
  return smallest;
}

}  // namespace

std::optional<ClassTotals> Tbf::totals(const Attributes& attributes, Head head) const {
  const Queue* const queue = binder_.known(attributes, head);
  if (queue == nullptr || queue->limits == nullptr) return std::nullopt;
  return queue->limits->totals;
}

void Tbf::visit_waits(Instant now, const std::function<void(const WaitView&)>& visit) const {
  waits_.visit(
      now, [this](const Queue& queue) { return run_.order_of(queue); },
      [&](Queue& queue, std::uint32_t waiting, std::uint64_t left, Instant begun,
          const DelaySums& delays) {
        visit({.key = binder_.index().attributes_of(queue),
               .head = queue.head,
               .waiting = waiting,
               .left = left,
               .begun = begun,
               .delays = delays});
      });
}

std::optional<std::size_t> Tbf::visit_classes(
    std::size_t from, std::size_t count, Instant now,
    const std::function<void(const ClassView&)>& visit) const {
  const auto show = [&](Class& used, const Attributes& key, bool overflows) {
    const Shapes& shapes = used.pace->shapes;
    ClassView view{.rule = *rule_of(used),
                   .key = overflows ? Attributes{}.only({}) : key,
                   .is_overflow = overflows,
                   .ops = shapes.ops,
                   .bytes = shapes.bytes,
                   .totals = used.totals};
    if (shapes.ops) view.ops_level = used.main.tokens.level(*shapes.ops, now);
    if (shapes.bytes) {
      const Bucket& bucket = shapes.ops ? *used.second : used.main;
      view.bytes_level = bucket.tokens.level(*shapes.bytes, now);
    }
    if (shapes.reserve) {
      view.reserve = shapes.reserve->rested;
      view.reserves_bytes = shapes.reserve->in_bytes;
      view.reserve_level = used.reservation->tokens.level(shapes.reserve->busy, now);
    }
    visit(view);
  };
  const tbf::QueueIndex& queues = binder_.index();
  const auto& lone = classes_.lone();
  const std::size_t own = queues.places();
  const std::size_t all = own + lone.size();
  const std::size_t end = std::min(from + count, all);
  for (std::size_t at = from; at < end; ++at) {
    if (at >= own) {
      tbf::LoneClass& one = *lone[at - own];
      show(one, one.by, is_overflow(one));
      continue;
    }
    Queue& queue = queues.at(static_cast<std::uint32_t>(at));
    if (!queue.own.is_vacant()) show(queue.own, queues.attributes_of(queue), false);
  }
  if (end == all) return std::nullopt;
  return end;
}

void Tbf::report_shares(Nanoseconds time, Instant now,
                        const std::function<void(const ShareReport&)>& visit) {
  absl::flat_hash_map<const Share*, std::optional<Tokens>> limits;
  absl::flat_hash_set<std::pair<const Share*, const Bucket*>> counted;
  for (auto& busy : busy_) {
    for (Queue& queue : busy) {
      Bucket* bucket = nullptr;
      const auto smallest = smallest_limit(queue, options_.sharing->cost, time, bucket);
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
    ShareReport report = tbf::Shares::collect(share, now);
    if (limit != limits.end()) report.limit = limit->second;
    visit(report);
  });
}

std::optional<std::uint64_t> Tbf::weight_of(const Attributes& attributes, Head head) const {
  if (!rules_.has_weights()) return std::nullopt;
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    const Rule* const rule = rules_.match(attributes, head, layer);
    if (rule != nullptr && rule->limits().weight) return *rule->limits().weight;
  }
  return std::nullopt;
}

const Rule& Tbf::first_rule(const Attributes& attributes, Head head) const {
  return *rules_.match(attributes, head, 0);
}

std::uint64_t Tbf::reserves_in_use() {
  if (!rules_.has_reserves()) return 0;
  std::uint64_t sum = 0;
  classes_.each(binder_.index(), [&](Class& used) {
    if (used.reservation == nullptr || !rule_of(used)->limits().reserve) return;
    tbf::Reservation& reservation = *used.reservation;
    if (!std::exchange(reservation.was_offered, reservation.is_offered())) return;
    const Rate rate = rules_.reserve_rate(rule_of(used)->limits(), used.pace->slice);
    const std::uint64_t one = tokens_in(rate, kReserveTime).count();
    if (__builtin_add_overflow(sum, one, &sum)) sum = UINT64_MAX;
  });
  return sum;
}

std::vector<ClassLoad> Tbf::cluster_loads(Nanoseconds time) const {
  std::vector<ClassLoad> loads;
  absl::flat_hash_map<const Class*, std::size_t> place_of;
  const auto add = [&](const Class& used, const Attributes& key, bool overflows) {
    if (used.state()->rules == 0) return;
    const Rule* const rule = rule_of(used);
    if (rule->limits().scope != Scope::kCluster) return;
    place_of.emplace(&used, loads.size());
    loads.push_back(
        {.rule = rule->name(),
         .key = key,
         .is_overflow = overflows,
         .served = Backlog{used.totals.served, used.totals.bytes}.cost(rule->limits().cost).count(),
         .served_bytes = used.totals.bytes});
  };
  const tbf::QueueIndex& queues = binder_.index();
  for (std::uint32_t i = 0; i < queues.places(); ++i) {
    Queue& queue = queues.at(i);
    if (!queue.own.is_vacant()) add(queue.own, queues.attributes_of(queue), false);
  }
  for (const tbf::LoneClass* const lone : classes_.lone()) {
    add(*lone, lone->by, is_overflow(*lone));
  }
  if (loads.empty()) return loads;
  for (const auto& busy : busy_) {
    for (const Queue& queue : busy) {
      queue.each_class([&](const Class& used) {
        const auto found = place_of.find(&used);
        if (found != place_of.end())
          count_waiting(queue, *rule_of(used), time, loads[found->second]);
      });
    }
  }
  return loads;
}

}  // namespace weir
