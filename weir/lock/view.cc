// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/view.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "weir/base/quote.h"

namespace weir::lock {
namespace {

constexpr std::int64_t kLruSizeMax = 1'000'000'000;
constexpr std::int64_t kLruMaxAgeMax =
    std::chrono::nanoseconds{std::chrono::hours{24 * 365}}.count();

std::uint64_t count(std::int64_t number) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, number));
}

Result<void> check_range(std::string_view what, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most) return {};
  return fail(std::errc::invalid_argument, what, fmt::format("{} is out of range", value),
              fmt::format("expected 0 to {}", most));
}

bool has_more(const ClientView& a, const ClientView& b) {
  return a.locks != b.locks ? a.locks > b.locks : a.client < b.client;
}

void look_at_clients(const LockServer& server, Instant now, std::size_t clients_max,
                     NamespaceView& view) {
  std::vector<ClientView> all;
  all.reserve(server.sessions());
  server.visit_sessions([&](const LockServer::Seen& seen) {
    all.push_back({.client = seen.client,
                   .locks = seen.locks,
                   .waiting = seen.waiting,
                   .silent = std::max(Nanoseconds{0}, now - seen.heard_at),
                   .is_connected = seen.connection != 0,
                   .knows_volume = (seen.features & kFeatureVolume) != 0,
                   .volume = seen.volume,
                   .factor_percent = seen.factor_percent});
    view.client_lock_volume = std::max(view.client_lock_volume, seen.volume);
    if (seen.factor_percent == 0) return;
    view.factor_max = std::max(view.factor_max, seen.factor_percent);
    view.factor_min =
        view.factor_min == 0 ? seen.factor_percent : std::min(view.factor_min, seen.factor_percent);
  });
  const auto shown = static_cast<std::ptrdiff_t>(std::min(clients_max, all.size()));
  std::partial_sort(all.begin(), all.begin() + shown, all.end(), has_more);
  for (auto one = all.begin() + shown; one != all.end(); ++one) {
    ++view.others.clients;
    view.others.locks += one->locks;
    view.others.waiting += one->waiting;
  }
  all.resize(static_cast<std::size_t>(shown));
  view.top = std::move(all);
}

}  // namespace

NamespaceView look(const LockServer& server, std::string_view name, Instant now,
                   std::size_t clients_max) {
  const ServerPool& pool = server.pool();
  const LockTable& table = server.table();
  NamespaceView view;
  view.name = name;
  view.preset = pool.preset();
  view.is_recovering = server.is_recovering();
  view.server_lock_volume = pool.volume();
  view.limit = pool.limit();
  view.granted = pool.granted();
  view.grant_rate = pool.grant_rate();
  view.cancel_rate = pool.cancel_rate();
  view.grant_speed = pool.grant_speed();
  view.grant_plan = pool.plan();
  view.plan_percent = pool.plan_percent();
  view.recalc_period = pool.period();
  view.lru_size = server.lru_size();
  view.lru_max_age = server.lru_max_age();
  view.resources = table.resources();
  view.waiting = table.waiting();
  view.parked = table.parked();
  view.converting = table.converting();
  view.watches = table.watches();
  view.grants = count(pool.grants());
  view.cancels = count(pool.cancels());
  view.counters = server.counters();
  look_at_clients(server, now, clients_max, view);
  view.state = pool.state_text(name, view.client_lock_volume, factor_text(view));
  return view;
}

LockList list_locks(const LockServer& server, const ListOptions& options) {
  LockList list;
  const auto see = [&](const LockTable::Seen& seen) {
    if (seen.name.find(options.filter) == std::string_view::npos) return;
    list.locks.push_back({.name = std::string(seen.name),
                          .mode = seen.mode,
                          .state = seen.state,
                          .client = server.client_of(seen.session),
                          .fence = seen.fence,
                          .is_asked = seen.is_asked,
                          .wanted = seen.wanted});
  };
  // In small steps, so that a full answer does not visit much more than it needs.
  std::uint32_t at = options.from;
  for (std::uint32_t looked = 0; looked < kListStep && list.locks.size() < options.max;) {
    const auto left = static_cast<std::uint32_t>(
        std::min<std::size_t>(kListStep - looked, options.max - list.locks.size()));
    list.next = server.table().visit(at, left, see);
    if (list.next == 0) return list;
    looked += left;
    at = list.next;
  }
  return list;
}

Result<void> turn(LockServer& server, Tunable tunable, std::int64_t value) {
  switch (tunable) {
    case Tunable::kLimit:
      return server.set_limit(value);
    case Tunable::kRecalcPeriod:
      return server.pool().set_period(Nanoseconds{value});
    case Tunable::kLruSize:
      if (auto checked = check_range("lru_size", value, kLruSizeMax); !checked) return checked;
      server.advise(static_cast<std::uint32_t>(value), server.lru_max_age());
      return {};
    case Tunable::kLruMaxAge:
      if (auto checked = check_range("lru_max_age", value, kLruMaxAgeMax); !checked) return checked;
      server.advise(server.lru_size(), Nanoseconds{value});
      return {};
  }
  return fail(std::errc::invalid_argument, "tunable", "is unknown");
}

Result<std::size_t> revoke(LockServer& server, std::string_view resource, std::uint64_t client) {
  const std::size_t count = server.revoke(resource, client);
  if (count > 0) return count;
  return fail(
      std::errc::no_such_file_or_directory, "resource " + quote(resource),
      client == 0 ? "is held by no client" : fmt::format("is not held by client {:x}", client),
      "list the locks: weir lock list");
}

std::string factor_text(const NamespaceView& view) {
  return view.factor_min == view.factor_max
             ? fmt::format("{}", view.factor_min)
             : fmt::format("{}-{}", view.factor_min, view.factor_max);
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kActive:
      return "active";
    case Role::kStandby:
      return "standby";
    case Role::kAlone:
      break;
  }
  return "alone";
}

std::string_view state_name(LockTable::State state) {
  switch (state) {
    case LockTable::State::kGranted:
      return "granted";
    case LockTable::State::kWaiting:
      return "waiting";
    case LockTable::State::kParked:
      return "parked";
    case LockTable::State::kFree:
      break;
  }
  return "free";
}

}  // namespace weir::lock
