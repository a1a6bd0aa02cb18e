// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/checkers.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace weir::sim {

void Findings::add(Instant at, std::string text) {
  ++count_;
  if (kept_.size() < kKept) {
    kept_.push_back(fmt::format("{:.6f} s: {}", static_cast<double>(ns_of(at)) / 1e9, text));
  }
}

// ---- windows ----

WindowCheck::Wide WindowCheck::excess_at(Instant now) const {
  const Wide time = ns_of(std::max(now, last_));
  return served_ * static_cast<Wide>(limit_.rate.time_ns()) -
         static_cast<Wide>(limit_.rate.tokens()) * time;
}

WindowCheck::Wide WindowCheck::allowance(Tokens cost) const {
  return static_cast<Wide>(std::max(limit_.depth, cost).count()) *
         static_cast<Wide>(limit_.rate.time_ns());
}

bool WindowCheck::serve(Tokens cost, Instant now) {
  const Wide before = excess_at(now);
  least_ = started_ ? std::min(least_, before) : before;
  started_ = true;
  last_ = std::max(now, last_);
  served_ += static_cast<Wide>(cost.count());
  return excess_at(now) - least_ <= allowance(cost);
}

bool WindowCheck::has_room(Tokens cost, Instant now) const {
  const Wide before = excess_at(now);
  const Wide least = started_ ? std::min(least_, before) : before;
  const Wide after =
      before + static_cast<Wide>(cost.count()) * static_cast<Wide>(limit_.rate.time_ns());
  return after - least <= allowance(cost);
}

// ---- records ----

RecordCheck::RecordCheck(const PeriodReport& report) {
  for (const JobRecord& record : report.records) sum += record.record;
  // Both are in the order of ids; a job without a record has lent as much as it has borrowed.
  auto known = report.records.begin();
  for (const JobPeriod& job : report.jobs) {
    while (known != report.records.end() && known->job.text() < job.job.text()) ++known;
    const bool is_there = known != report.records.end() && known->job == job.job;
    agrees = agrees && job.record == (is_there ? known->record : 0);
  }
}

// ---- reservations ----

namespace {

constexpr Nanoseconds kReserveWindow = std::chrono::seconds{1};

}  // namespace

ReserveCheck::ReserveCheck(Rate rate, Tokens largest)
    : least_(tokens_in(rate, kReserveWindow * 99 / 100)) {
  least_ -= std::min(least_, largest);
}

bool ReserveCheck::check(Instant now) {
  bool enough = true;
  while (!begins_.empty() && now - begins_.front().at > kReserveWindow) {
    enough = enough && served_ - begins_.front().served >= least_;
    begins_.pop_front();
  }
  return enough;
}

bool ReserveCheck::arrive(Instant now) {
  const bool enough = check(now);
  if (waiting_++ == 0) begins_.push_back({now, served_});
  return enough;
}

bool ReserveCheck::dispatch(Tokens cost, Instant now) {
  const bool enough = check(now);
  served_ += cost;
  begins_.push_back({now, served_});
  if (waiting_ > 0 && --waiting_ == 0) begins_.clear();
  return enough;
}

// ---- order ----

OrderCheck::Fault OrderCheck::dispatch(std::size_t lane, std::uint64_t number) {
  Lane& in = lanes_[lane];
  if (number < in.dispatched) return Fault::kTwice;
  const Fault fault = number == in.dispatched ? Fault::kNone : Fault::kOrder;
  ++in.dispatched;
  return fault;
}

std::uint64_t OrderCheck::waiting() const {
  std::uint64_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.arrived - lane.dispatched;
  return sum;
}

// ---- all of a target ----

Checkers::Checkers(std::string_view target, const Bounds& bounds, std::uint32_t slots,
                   std::size_t lanes, Tokens largest, Findings& findings)
    : target_(target),
      idling_(bounds.idling),
      slots_(slots),
      largest_(largest),
      order_(lanes),
      findings_(findings) {
  jobs_.reserve(bounds.jobs.size());
  for (const auto& limit : bounds.jobs) {
    jobs_.push_back(limit ? std::optional<WindowCheck>(*limit) : std::nullopt);
  }
  if (bounds.whole) whole_.emplace(*bounds.whole);
  if (bounds.enough) enough_.emplace(*bounds.enough);
  for (const auto& rate : bounds.reserves) {
    reserves_.push_back(rate ? std::optional<ReserveCheck>({*rate, largest}) : std::nullopt);
  }
  if (bounds.tree) parts_.emplace(*bounds.tree, largest);
}

void Checkers::note_parts(Instant now) {
  if (const auto wrong = parts_->take_finding()) found(now, *wrong);
}

ReserveCheck* Checkers::reserve_of(std::size_t job) {
  return job < reserves_.size() && reserves_[job] ? &*reserves_[job] : nullptr;
}

void Checkers::miss_reserve(std::size_t job, Instant now) {
  found(now, fmt::format("job {} got less than its reservation for a second", job + 1));
}

void Checkers::wait(std::size_t job, Instant now) {
  ReserveCheck* const reserve = reserve_of(job);
  if (reserve != nullptr && !reserve->arrive(now)) miss_reserve(job, now);
  if (!parts_) return;
  parts_->wait(job, now);
  note_parts(now);
}

void Checkers::found(Instant at, std::string_view what) {
  findings_.add(at, fmt::format("{}: {}", target_, what));
}

void Checkers::dispatch(std::size_t job, std::size_t lane, std::uint64_t number, Tokens cost,
                        Instant now) {
  if (queued_ == 0) found(now, "dispatched more than arrived");
  queued_ -= queued_ > 0 ? 1 : 0;
  if (++running_ > slots_) found(now, fmt::format("{} in service on {} slots", running_, slots_));
  const OrderCheck::Fault fault = order_.dispatch(lane, number);
  if (fault == OrderCheck::Fault::kTwice) found(now, "a request was dispatched twice");
  if (fault == OrderCheck::Fault::kOrder) found(now, "a request overtook one of its process");
  if (jobs_[job] && !jobs_[job]->serve(cost, now)) {
    found(now, fmt::format("job {} is above its limit", job + 1));
  }
  if (whole_ && !whole_->serve(cost, now)) found(now, "is above its capacity");
  if (enough_) enough_->serve(cost, now);
  ReserveCheck* const reserve = reserve_of(job);
  if (reserve != nullptr && !reserve->dispatch(cost, now)) miss_reserve(job, now);
  if (!parts_) return;
  parts_->dispatch(job, cost, now);
  note_parts(now);
}

void Checkers::complete(Instant now) {
  if (running_ == 0) {
    found(now, "completed more than was dispatched");
    return;
  }
  --running_;
}

void Checkers::rest(bool ran_after_all, Instant now) {
  if (ran_after_all) found(now, "reported nothing to run, and then had a request");
  if (idling_ == Idling::kAllowed || queued_ == 0 || running_ >= slots_) return;
  if (idling_ == Idling::kAtCapacity && enough_ && !enough_->has_room(largest_, now)) return;
  found(now, fmt::format("a slot is free while {} wait", queued_));
}

void Checkers::period(const PeriodReport& report) {
  const RecordCheck check(report);
  if (check.sum != 0) found(report.at, fmt::format("records sum to {}", check.sum));
  if (!check.agrees) found(report.at, "a job has two records");
}

void Checkers::end(std::uint64_t drained, Instant now) {
  for (std::size_t job = 0; job < reserves_.size(); ++job) {
    if (reserves_[job] && !reserves_[job]->check(now)) miss_reserve(job, now);
  }
  if (parts_) {
    parts_->end(now);
    note_parts(now);
  }
  if (drained != queued_ || order_.waiting() != queued_) {
    found(now,
          fmt::format("{} requests waited at the end and {} were dispatched", queued_, drained));
  }
}

}  // namespace weir::sim
