// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/class_table.h"

#include <utility>

namespace weir::tbf {

Attributes overflow_key(FieldSet by) {
  Attributes key = Attributes{}.only({});
  if (!by.empty()) key.nid.net_number = UINT32_MAX;  // of no network
  return key;
}

Class* ClassTable::find(const RuleState& state, const Attributes& by, Queue* host) const {
  if (host != nullptr && !host->own.is_vacant() && host->own.state() == &state) return &host->own;
  const auto found = lone_.find(Key{&state, by});
  return found == lone_.end() ? nullptr : found->get();
}

Class& ClassTable::make(RuleState& state, const Attributes& by, Queue* host, Instant now) {
  std::unique_ptr<LoneClass> lone;
  Class* made = host != nullptr && host->own.is_vacant() ? &host->own : nullptr;
  if (made == nullptr) {
    lone = std::make_unique<LoneClass>();
    lone->by = by;
    lone->is_lone = true;
    made = lone.get();
  }
  made->pace = &state.pace;
  made->tag = 0;
  made->totals = {};
  made->reshape({}, made->pace->shapes, now);
  if (made->is_lone) made->open_to_others();
  ++size_;
  ++state.classes;
  if (lone != nullptr) keep(std::move(lone));
  return *made;
}

void ClassTable::keep(std::unique_ptr<LoneClass> lone) {
  lone->place = order_.size();
  order_.push_back(lone.get());
  lone_.insert(std::move(lone));
}

Pace& ClassTable::own_pace(Class& used, const Attributes& by) {
  RuleState& state = *used.state();
  if (used.pace != &state.pace) return *used.pace;
  auto made = std::make_unique<Pace>();
  made->shapes = state.pace.shapes;
  made->state = &state;
  made->key = by;
  used.pace = made.get();
  state.own[by] = std::move(made);
  return *used.pace;
}

void ClassTable::use(Class& chosen, Head head, const Rule& rule) {
  if (chosen.users++ == 0 && chosen.is_lone) {
    auto& lone = static_cast<LoneClass&>(chosen);
    if (lone.unused_hook.is_linked()) unused_.erase(unused_.iterator_to(lone));
  }
  if (chosen.is_listed[index(head)]) return;
  chosen.is_listed[index(head)] = true;
  rule.retain();
}

void ClassTable::release(Class& used) {
  if (--used.users > 0) return;
  const bool is_stopped = used.state()->rules == 0;
  if (!used.is_lone) {
    if (is_stopped) vacate(used);
  } else if (is_stopped) {
    forget(static_cast<LoneClass&>(used));
  } else {
    unused_.push_back(static_cast<LoneClass&>(used));
  }
}

void ClassTable::vacate(Class& gone) {
  const Pace& pace = *std::exchange(gone.pace, nullptr);
  RuleState& state = *pace.state;
  for (const Head head : kHeads) {
    if (std::exchange(gone.is_listed[index(head)], false)) state.listed[index(head)]->release();
  }
  gone.second.reset();
  gone.reservation.reset();
  gone.main.waiters.reset();
  --size_;
  --state.classes;
  if (&pace != &state.pace) state.own.erase(Attributes(pace.key));
  rules_.forget_if_unused(state);
}

// REQUIRES: used by no queue, and not in the list of unused classes.
void ClassTable::forget(LoneClass& gone) {
  const auto kept = lone_.extract(lone_.find(Key{gone.state(), gone.by}));
  order_.back()->place = gone.place;
  order_[gone.place] = order_.back();
  order_.pop_back();
  vacate(gone);
}

void ClassTable::forget_one_unused(Instant now) {
  if (unused_.empty()) return;
  LoneClass& oldest = unused_.front();
  unused_.pop_front();
  if (oldest.is_full(now)) {
    forget(oldest);
  } else {
    unused_.push_back(oldest);
  }
}

void ClassTable::forget_stopped() {
  for (auto it = unused_.begin(); it != unused_.end();) {
    LoneClass& candidate = *it;
    if (candidate.state()->rules > 0) {
      ++it;
      continue;
    }
    it = unused_.erase(it);
    forget(candidate);
  }
}

void ClassTable::move_out(Queue& host, const Attributes& by) {
  auto lone = std::make_unique<LoneClass>();
  static_cast<Class&>(*lone) = std::move(host.own);
  host.own.pace = nullptr;
  lone->is_lone = true;
  lone->by = by;
  lone->open_to_others();
  unused_.push_back(*lone);
  keep(std::move(lone));
}

}  // namespace weir::tbf
