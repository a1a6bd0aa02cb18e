// SPDX-License-Identifier: Apache-2.0
#include "weir/study/lock_scenario_file.h"

#include <vector>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/config/toml_table.h"

namespace weir::study {
namespace {

constexpr Nanoseconds kLongest = Nanoseconds::max();

std::vector<Nanoseconds> times(const config::TomlTable& table, std::string_view key) {
  std::vector<Nanoseconds> read;
  for (const config::TomlTable::Item& item : table.texts(key)) {
    const auto time = parse_duration(item.text);
    if (time) {
      read.push_back(*time);
    } else {
      table.refuse(key, "contains an invalid time", "expected times such as '30s'");
    }
  }
  return read;
}

void read_appetites(const config::TomlTable& table, sim::LockScenario& scenario) {
  if (!table.has("appetites")) return;
  scenario.appetites.clear();
  for (const config::TomlTable::Item& item : table.texts("appetites")) {
    if (const auto appetite = sim::appetite_by(item.text)) {
      scenario.appetites.push_back(*appetite);
    } else {
      table.refuse("appetites", fmt::format("{} is not valid", quote(item.text)),
                   "expected equal, zipf, glutton or pareto");
    }
  }
}

void read_policies(const config::TomlTable& table, sim::LockScenario& scenario) {
  if (!table.has("policies")) return;
  scenario.contenders.clear();
  for (const config::TomlTable::Item& item : table.texts("policies")) {
    if (const auto contender = sim::lock_contender_by(item.text)) {
      scenario.contenders.push_back(*contender);
    } else {
      table.refuse("policies", fmt::format("{} is not valid", quote(item.text)),
                   "expected weir, dld, lustre, frozen or lru-N");
    }
  }
}

void read_faults(const config::TomlTable& table, sim::LockScenario& scenario) {
  const auto from_0 = [&](std::string_view key, Nanoseconds without) {
    return table.time(key, without, Nanoseconds{0}, kLongest);
  };
  scenario.hoarders = table.small("hoarders", 0, 0, sim::kLockClientsMax);
  scenario.crashes = times(table, "crashes");
  scenario.down = from_0("down", scenario.down);
  scenario.reconnect = from_0("reconnect", scenario.reconnect);
  scenario.vanish = table.small("vanish", 0, 0, sim::kLockClientsMax);
  scenario.vanish_at = from_0("vanish_at", scenario.vanish_at);
  scenario.drop_all = times(table, "drop_all");
}

void read_locks(const config::TomlTable& table, sim::LockScenario& scenario) {
  constexpr std::uint64_t kMost = 1'000'000'000;
  const auto from_0 = [&](std::string_view key, Nanoseconds without) {
    return table.time(key, without, Nanoseconds{0}, kLongest);
  };
  scenario.limit = static_cast<std::int64_t>(table.number("limit", 100'000, 1, kMost));
  scenario.clients = table.small("clients", scenario.clients, 1, sim::kLockClientsMax);
  scenario.rate = table.number("rate", scenario.rate, 0, kMost);
  scenario.working_set = table.number("working_set", 0, 0, kMost);
  scenario.settled = from_0("settled", scenario.settled);
  scenario.until = from_0("until", scenario.until);
  scenario.delay = from_0("delay", scenario.delay);
  scenario.lease = from_0("lease", scenario.lease);
  scenario.grace = from_0("grace", scenario.grace);
  scenario.common_locks = table.small("common_locks", 0, 0, 1'000'000);
  scenario.common_rate = table.number("common_rate", 0, 0, kMost);
  scenario.hold = from_0("hold", scenario.hold);
  read_appetites(table, scenario);
  read_policies(table, scenario);
  read_faults(table, scenario);
}

}  // namespace

bool is_lock_scenario(std::string_view text) {
  const auto document = config::parse_toml(text, "");
  if (!document) return false;
  config::TomlMistakes unused("");
  return config::TomlTable(*document, "", unused, {"locks"}).has("locks");
}

Result<sim::LockScenario> parse_lock_scenario(std::string_view text, const std::string& where) {
  const auto document = config::parse_toml(text, where);
  if (!document) return tl::unexpected(document.error());
  config::TomlMistakes mistakes(where);
  sim::LockScenario scenario;
  const config::TomlTable table(*document, "scenario", mistakes, {"title", "length", "locks"});
  scenario.title = table.text("title", "");
  scenario.length = table.time("length", scenario.length, std::chrono::seconds{1}, kLongest);
  table.each("locks", [&](const config::TomlValue& one) {
    read_locks(
        config::TomlTable(
            one, "locks", mistakes,
            {"limit",     "clients",   "rate",     "working_set",  "settled",     "until",
             "delay",     "lease",     "grace",    "common_locks", "common_rate", "hold",
             "appetites", "policies",  "hoarders", "crashes",      "down",        "reconnect",
             "vanish",    "vanish_at", "drop_all"}),
        scenario);
  });
  if (!mistakes.empty()) return tl::unexpected(mistakes.in_order().front());
  if (auto checked = check(scenario); !checked) {
    checked.error().where = where + ": " + checked.error().where;
    return tl::unexpected(checked.error());
  }
  return scenario;
}

}  // namespace weir::study
