// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <fmt/format.h>

#include "weir/classify/command.h"
#include "weir/classify/plain_rates.h"
#include "weir/config/serve_config.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"

namespace weir::config {
namespace {

using Bounds = ServeConfigBounds;

}  // namespace

void read_lock(const TomlTable& table, serve::LockOptions& lock) {
  if (table.has("listen")) {
    const auto address = serve::parse_listen(table.text("listen", ""), serve::LockOptions::kPort);
    if (address) {
      lock.listen = *address;
    } else {
      refuse_with(table, table.place_of("listen"), "listen", address.error());
    }
  }
  lock.state_file = bounded_text(table, "state", Bounds::kPathMax);
  lock::PoolOptions& pool = lock.server.pool;
  pool.limit = static_cast<std::int64_t>(table.number(
      "limit", static_cast<std::uint64_t>(pool.limit), 1, std::uint64_t{lock::kLimitMax}));
  constexpr std::array<lock::Preset, 3> kPresets = {lock::Preset::kWeir, lock::Preset::kDld,
                                                    lock::Preset::kLustre};
  pool.preset = kPresets.at(table.word("preset", 0, {"weir", "dld", "lustre"}));
  lock.server.lease = table.time("lease", lock.server.lease, Bounds::kLeaseMin, Bounds::kLeaseMax);
  lock.server.grace = table.time("grace", lock.server.lease + lock.server.lease / 2,
                                 Bounds::kLeaseMin, 2 * Bounds::kLeaseMax);
  if (const auto checked = lock::check(lock.server); !checked) {
    table.refuse(table.has("grace") ? "grace" : "lease", checked.error().what,
                 checked.error().hint);
  }
  lock.policy = table.text("policy", lock.policy);
  std::size_t number = 0;
  for (const TomlTable::Item& item : table.texts("rules")) {
    ++number;
    auto rule = parse_rule(with_plain_rates(item.text));
    if (rule) {
      lock.rules.push_back(*std::move(rule));
    } else {
      refuse_with(table, item.at, fmt::format("rule {}", number), rule.error());
    }
  }
  lock.insecure = table.flag("insecure", false);
}

}  // namespace weir::config
