// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/crrn.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {

Crrn::~Crrn() {
  WEIR_ASSERT(order_.empty(), order_.size());
  idle_.clear();
}

Crrn::Client& Crrn::client_of(const Nid& nid) {
  auto& slot = clients_[nid];
  if (slot != nullptr) {
    if (slot->queued == 0) idle_.erase(idle_.iterator_to(*slot));
    return *slot;
  }
  slot = std::make_unique<Client>();
  slot->nid = nid;
  Client& client = *slot;
  if (clients_.size() > kClientsMax && !idle_.empty()) {
    const Client& oldest = idle_.front();
    const Nid gone = oldest.nid;
    idle_.pop_front();
    clients_.erase(gone);
  }
  return client;
}

void Crrn::begin_batch(Client& client) {
  // A client that became idle inside a batch does not continue it: its next requests form a new
  // batch, in a later round.
  if (client.queued == 0 && client.quantum_left > 0) ++client.round;
  client.round = std::max(client.round, round_);
  if (client.sequence < sequence_) client.sequence = ++sequence_;
  client.quantum_left = quantum_;
}

void Crrn::admit(Request& request, Instant /*now*/) {
  Client& client = client_of(request.attributes.nid);
  if (client.quantum_left == 0 || client.round < round_ || client.queued == 0) begin_batch(client);
  request.policy_group = &client;
  order_.push(request, {client.round, client.sequence});
  ++client.queued;
  if (--client.quantum_left == 0) ++client.round;
}

void Crrn::release(Request& request, Position position) {
  auto& client = *static_cast<Client*>(request.policy_group);
  request.policy_group = nullptr;
  if (--client.queued == 0) idle_.push_back(client);
  if (position == Position::kLater) return;
  round_ = order_.empty() ? round_ + 1 : std::max(round_, order_.top_key().round);
}

Pick Crrn::pick(Instant /*now*/, Urge /*urge*/) {
  if (order_.empty()) return {};
  Request& first = order_.pop();
  release(first, Position::kFirst);
  return {&first, kNever};
}

void Crrn::remove(Request& request, Instant /*now*/) {
  const Position position = &order_.top() == &request ? Position::kFirst : Position::kLater;
  order_.erase(request);
  release(request, position);
}

void Crrn::set_quantum(std::uint16_t quantum) {
  WEIR_ASSERT(quantum > 0);
  quantum_ = quantum;
}

std::optional<std::uint64_t> Crrn::tunable(std::string_view name) const {
  return name == kQuantum ? std::optional<std::uint64_t>(quantum_) : std::nullopt;
}

void Crrn::set_tunable(std::string_view name, std::uint64_t value) {
  if (name == kQuantum) set_quantum(static_cast<std::uint16_t>(value));
}

}  // namespace weir
