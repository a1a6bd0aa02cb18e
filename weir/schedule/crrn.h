// SPDX-License-Identifier: Apache-2.0
//
// Round robin over clients: each client (by NID, including its network) is served a batch of up to
// `quantum` requests, then the next client. The scheme is that of Lustre's crrn policy: the same
// arrivals give the same order.
//
//   every request is stamped (round, sequence) on arrival, and requests leave in that order
//   round      of the client: increases with every full batch, and is never behind the policy's
//   sequence   of the client within a round: the order in which clients entered the round
//
// Example, quantum 2, client a sends a1..a4, then b sends b1 b2: a1 a2 have round 0, a3 a4 round 1,
// b1 b2 round 0: the order is a1 a2 b1 b2 a3 a4.
//
// Clients without requests are kept, up to kClientsMax; beyond that the least recently used one is
// removed. A removed client returns like a new one, which starts at the policy's round in either
// case. Cost: O(log queued) per request, and no allocation for a known client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <absl/container/flat_hash_map.h>
#include <boost/intrusive/list.hpp>

#include "weir/base/heap.h"
#include "weir/schedule/policy.h"

namespace weir {

class Crrn final : public Policy {
 public:
  static constexpr std::string_view kName = "crrn";
  static constexpr std::string_view kQuantum = "quantum";  // its tunable
  static constexpr std::uint16_t kQuantumDefault = 8;
  static constexpr std::uint16_t kQuantumMax = 65535;
  static constexpr std::size_t kClientsMax = 8192;

  Crrn() = default;
  ~Crrn() override;

  std::string_view name() const override { return kName; }
  void admit(Request& request, Instant now) override;
  Pick pick(Instant now, Urge urge) override;
  void remove(Request& request, Instant now) override;

  std::uint16_t quantum() const { return quantum_; }
  // Takes effect with each client's next batch. REQUIRES: quantum > 0.
  void set_quantum(std::uint16_t quantum);
  std::optional<std::uint64_t> tunable(std::string_view name) const override;
  void set_tunable(std::string_view name, std::uint64_t value) override;

  std::size_t clients() const { return clients_.size(); }

 private:
  struct Stamp {
    std::uint64_t round;
    std::uint64_t sequence;
    bool operator<(const Stamp& other) const {
      return round != other.round ? round < other.round : sequence < other.sequence;
    }
  };
  struct Client {
    Nid nid;
    std::uint64_t round = 0;
    std::uint64_t sequence = 0;
    std::uint64_t queued = 0;
    std::uint16_t quantum_left = 0;
    boost::intrusive::list_member_hook<> idle_hook;
  };

  Client& client_of(const Nid& nid);
  void begin_batch(Client& client);
  // One of the client's requests has left; whether it was the first in order determines if the
  // policy's round advances.
  enum class Position : std::uint8_t { kFirst, kLater };
  void release(Request& request, Position position);

  std::uint16_t quantum_ = kQuantumDefault;
  std::uint64_t round_ = 0;
  std::uint64_t sequence_ = 1;
  struct NidHash {
    std::size_t operator()(const Nid& nid) const { return nid.hash(); }
  };
  absl::flat_hash_map<Nid, std::unique_ptr<Client>, NidHash> clients_;
  using IdleHook = boost::intrusive::member_hook<Client, boost::intrusive::list_member_hook<>,
                                                 &Client::idle_hook>;
  boost::intrusive::list<Client, IdleHook> idle_;  // least recently used first
  Heap<Request, Stamp, &Request::policy_heap> order_;
};

}  // namespace weir
