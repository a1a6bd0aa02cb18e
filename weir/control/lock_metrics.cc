// SPDX-License-Identifier: Apache-2.0
#include "weir/control/lock_metrics.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weir/control/metric_family.h"

namespace weir::control {
namespace {

std::string labels_of_locks(const lock::NamespaceView& view) {
  return "{namespace=" + metric_label(view.name) + "}";
}

std::string labels_of_locks(const lock::NamespaceView& view, std::string_view key,
                            std::string_view value) {
  return fmt::format("{{namespace={},{}={}}}", metric_label(view.name), key, metric_label(value));
}

using Locks = std::vector<lock::NamespaceView>;

void add_lock_gauges(std::string& page, const Locks& locks) {
  const auto family = [&](std::string_view name, std::string_view help, auto&& pick) {
    Family lines(page, name, "gauge", help);
    for (const lock::NamespaceView& one : locks) lines.add_signed(labels_of_locks(one), pick(one));
  };
  const auto count = [](std::uint64_t number) { return static_cast<std::int64_t>(number); };
  Family volume(page, "weir_lock_volume", "gauge",
                "Server lock volume: locks times seconds that a client may cache.");
  for (const lock::NamespaceView& one : locks) {
    volume.add(labels_of_locks(one), one.server_lock_volume);
  }
  family("weir_lock_limit", "Target for the number of granted locks.",
         [](const auto& one) { return one.limit; });
  family("weir_lock_granted", "Granted locks, in use or cached.",
         [](const auto& one) { return one.granted; });
  family("weir_lock_grant_plan", "Planned number of granted locks at the end of this period.",
         [](const auto& one) { return one.grant_plan; });
  family("weir_lock_grant_speed", "Grants minus cancels per second in the last period.",
         [](const auto& one) { return one.grant_speed; });
  family("weir_lock_waiting", "Enqueues waiting for a conflicting lock.",
         [&](const auto& one) { return count(one.waiting); });
  family("weir_lock_parked", "Enqueues held back by the lock limit.",
         [&](const auto& one) { return count(one.parked); });
  family("weir_lock_converting", "Granted locks that wait to be held in another mode.",
         [&](const auto& one) { return count(one.converting); });
  family("weir_lock_watches", "Clients that wait to be told that a resource is free.",
         [&](const auto& one) { return count(one.watches); });
  family("weir_lock_resources", "Resources with locks or waiting enqueues.",
         [&](const auto& one) { return count(one.resources); });
  family("weir_lock_clients", "Clients with a lease.",
         [&](const auto& one) { return count(one.clients()); });
  family("weir_lock_active", "1 on the server that grants locks, 0 on a standby.",
         [](const auto& one) { return std::int64_t{one.role != lock::Role::kStandby}; });
  family("weir_lock_recovering", "1 while the server collects replays after a restart.",
         [](const auto& one) { return std::int64_t{one.is_recovering}; });
}

void add_lock_counters(std::string& page, const Locks& locks) {
  const auto family = [&](std::string_view name, std::string_view help, auto&& pick) {
    Family lines(page, name, "counter", help);
    for (const lock::NamespaceView& one : locks) lines.add(labels_of_locks(one), pick(one));
  };
  family("weir_lock_grants_total", "Locks granted or replayed.",
         [](const auto& one) { return one.grants; });
  family("weir_lock_cancels_total", "Locks returned by clients or revoked from lost clients.",
         [](const auto& one) { return one.cancels; });
  family("weir_lock_conversions_total", "Locks converted to another mode.",
         [](const auto& one) { return one.counters.conversions; });
  family("weir_lock_evictions_total", "Clients evicted because their lease expired.",
         [](const auto& one) { return one.counters.evictions; });
  family("weir_lock_revoked_total", "Locks taken away by an administrator.",
         [](const auto& one) { return one.counters.revoked; });
  Family refused(page, "weir_lock_refused_total", "counter", "Rejected client requests.");
  for (const lock::NamespaceView& one : locks) {
    const std::pair<std::string_view, std::uint64_t> reasons[] = {
        {"bad_name", one.counters.bad_names},
        {"broken_rules", one.counters.broken_rules},
        {"deadlock", one.counters.deadlocks},
        {"lost_replay", one.counters.lost_replays},
        {"wrong_secret", one.counters.wrong_secrets},
        {"too_many", one.counters.too_many},
        {"unknown_cancel", one.counters.unknown_cancels}};
    for (const auto& [reason, times] : reasons) {
      refused.add(labels_of_locks(one, "reason", reason), times);
    }
  }
}

}  // namespace

// A client keeps its series while it is in the view, which has more clients than series: two of
// about the same size do not alternate.
void LockMetrics::choose_clients(const lock::NamespaceView& view) {
  std::set<std::uint64_t>& chosen = clients_[view.name];
  std::set<std::uint64_t> named;
  for (const lock::ClientView& client : view.top) named.insert(client.client);
  std::erase_if(chosen, [&](std::uint64_t client) { return !named.contains(client); });
  for (const lock::ClientView& client : view.top) {
    if (chosen.size() >= kClientsMax) break;
    chosen.insert(client.client);
  }
}

void LockMetrics::add_to(std::string& page, const std::vector<lock::NamespaceView>& locks) {
  if (locks.empty()) return;
  add_lock_gauges(page, locks);
  add_lock_counters(page, locks);
  Family held(
      page, "weir_lock_client_locks", "gauge",
      "Locks per client, for the clients with the most locks; all others are summed as other.");
  for (const lock::NamespaceView& one : locks) {
    choose_clients(one);
    const std::set<std::uint64_t>& chosen = clients_[one.name];
    std::uint64_t others = one.others.locks;
    for (const lock::ClientView& client : one.top) {
      if (!chosen.contains(client.client)) {
        others += client.locks;
      } else {
        held.add(labels_of_locks(one, "client", std::to_string(client.client)), client.locks);
      }
    }
    held.add(labels_of_locks(one, "client", "other"), others);
  }
}

}  // namespace weir::control
