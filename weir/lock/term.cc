// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/term.h"

#include <algorithm>
#include <utility>

namespace weir::lock {

Handover handover_of(const LockServer& server) {
  Handover left{.term = server.incarnation(), .knows = Handover::Knows::kClients};
  // Whoever waits for the lock of an earlier server is not known.
  if (server.is_recovering()) left.knows = Handover::Knows::kNothing;
  server.visit_sessions([&](const LockServer::Seen& seen) {
    if (seen.locks + seen.waiting > 0 && left.clients.size() <= Handover::kClientsMax) {
      left.clients.push_back(seen.client);
    }
  });
  if (left.clients.size() > Handover::kClientsMax) left.knows = Handover::Knows::kNothing;
  if (left.knows == Handover::Knows::kNothing) left.clients.clear();
  return left;
}

Succession succession_of(const TermRecord& before, std::uint64_t term, OwnState own,
                         Nanoseconds lease, Nanoseconds length) {
  Succession next{.term = term, .start = LockServer::Start::kRecovering, .grace = lease};
  if (before.term == 0) {  // no server was active before: only a server without terms
    if (own == OwnState::kClean) next.start = LockServer::Start::kFresh;
    return next;
  }
  const bool left_in_order = before.left && before.left->term == before.term;
  if (!left_in_order) {
    next.grace = lease - length * 3 / 8;
  } else if (before.left->knows == Handover::Knows::kClients) {
    next.clients = before.left->clients;
    if (next.clients.empty()) next.start = LockServer::Start::kFresh;
  }
  return next;
}

std::uint64_t Candidate::campaign_term(std::uint64_t own) const {
  return std::max(record_.term, own) + 1;
}

Candidate::Ask Candidate::next(Instant now) {
  if (leads_ && now >= kept_at_ + length_) step_down();  // another server may be active now
  if (now < retry_at_) return Ask::kNothing;
  if (leads_ && now >= kept_at_ + length_ / 4) return Ask::kRenew;
  // The flag is cleared before the question, so that a change meanwhile is not missed.
  if (std::exchange(has_news_, false) || (!leads_ && now >= look_at_)) return Ask::kLook;
  if (leads_ || record_.active) return Ask::kNothing;
  // A new lease, so that its term is proven from the start.
  if (lease_ == 0 || now >= kept_at_ + length_ / 4) return Ask::kGrant;
  before_ = record_;
  return Ask::kCampaign;
}

Instant Candidate::wakes_at() const {
  if (has_news_) return retry_at_;
  return std::max(retry_at_, leads_ ? kept_at_ + length_ / 4 : look_at_);
}

void Candidate::step_down() {
  leads_ = false;
  lease_ = 0;
  has_news_ = true;
}

void Candidate::looked(const TermRecord& record, Instant now) {
  record_ = record;
  look_at_ = now + kLookEvery;
  const bool is_ours = lease_ != 0 && record.active && record.active->lease == lease_;
  if (leads_ && !is_ours) return step_down();
  if (is_ours && !leads_) {  // the answer to its campaign was lost
    leads_ = true;
    term_ = record.active->term;
  }
}

void Candidate::granted(std::int64_t lease, Nanoseconds length, Instant asked) {
  lease_ = lease;
  length_ = length;
  kept_at_ = asked;
}

void Candidate::renewed(Nanoseconds length, Instant asked) {
  length_ = std::min(length, length_);
  kept_at_ = asked;
}

void Candidate::lease_is_gone() { step_down(); }

void Candidate::campaigned(bool has_won, std::uint64_t term) {
  has_news_ = true;  // who won, and that it is in the record
  leads_ = has_won;
  term_ = term;
  if (!has_won) lease_ = 0;
}

void Candidate::failed(Instant now) {
  retry_at_ = now + kRetry;
  has_news_ = true;
}

}  // namespace weir::lock
