// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/reserves.h"

namespace weir::tbf {

// When its reservation can pay for its first request.
Instant Reserves::ready_at(const Queue& queue) {
  const Class& used = *queue.reserving();
  const Tokens cost = used.reserve_cost(queue.requests.front().bytes);
  return used.reservation->tokens.ready_at(cost, used.pace->shapes.reserve->rested);
}

// Tokens above the smaller depth are dropped after a pause.
void Reserves::add(Queue& queue, Instant now) {
  const Class* const used = queue.reserving();
  Reservation& reservation = *used->reservation;
  if (!reservation.is_offered() && reservation.unused_since < now) {
    Spill dropped;
    reservation.tokens.trim(used->pace->shapes.reserve->rested, now, dropped);
  }
  reservation.was_offered = true;
  ReserveLine& line = line_of(queue);
  line.queues.push(*queue.extra, tags_.owner_tag(queue), queue.turn());
  place(line, queue.head);
}

void Reserves::remove(Queue& queue, Instant now) {
  ReserveLine& line = line_of(queue);
  line.queues.erase(*queue.extra);
  place(line, queue.head);
  Reservation& reservation = *queue.reserving()->reservation;
  if (!reservation.is_offered()) reservation.unused_since = now;
}

// Its first queue, or the tokens, have changed.
void Reserves::place(ReserveLine& line, Head head) {
  auto& lines = lines_[index(head)];
  const bool is_placed = line.hook.is_linked();
  if (line.queues.empty()) {
    if (is_placed) lines.erase(line);
    return;
  }
  const Queue& queue = *line.queues.top().queue;
  if (is_placed) {
    lines.update(line, ready_at(queue), queue.turn());
  } else {
    lines.push(line, ready_at(queue), queue.turn());
  }
}

void Reserves::place_both(Class& reserving) {
  for (const Head head : kHeads) place(reserving.reservation->lines[index(head)], head);
}

// Others may have moved a tag, or taken tokens, since it got its place.
Queue* Reserves::first(Head head, Instant now) {
  auto& lines = lines_[index(head)];
  while (!lines.empty() && lines.top_key() <= now) {
    ReserveLine& line = lines.top();
    Queue& queue = *line.queues.top().queue;
    const std::uint64_t tag = tags_.owner_tag(queue);
    if (line.queues.top_key() < tag) {
      line.queues.replace_top(tag, queue.turn());
      place(line, head);
    } else {
      return &queue;
    }
  }
  return nullptr;
}

void Reserves::pay(Queue& queue, Bytes size, Instant now) {
  Class& used = *queue.reserving();
  used.reservation->tokens.charge(used.reserve_cost(size), used.pace->shapes.reserve->busy, now);
  place_both(used);
}

void Reserves::settle(Queue& queue, Tokens paid, Tokens due, Instant now) {
  Class& used = *queue.reserving();
  const BucketShape& shape = used.pace->shapes.reserve->busy;
  TokenBucket& tokens = used.reservation->tokens;
  due > paid ? tokens.charge(due - paid, shape, now) : tokens.give_back(paid - due, shape);
  place_both(used);
}

}  // namespace weir::tbf
