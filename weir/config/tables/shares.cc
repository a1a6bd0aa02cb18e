// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "weir/adapt/tree_allocator.h"
#include "weir/adapt/tree_shares.h"
#include "weir/base/job_id.h"
#include "weir/base/quote.h"
#include "weir/classify/number.h"
#include "weir/classify/share_level.h"
#include "weir/config/serve_config.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"
#include "weir/target/tree_levels.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Bounds = ServeConfigBounds;

// A value of a level in the path of a weight, as requests have it; empty after an error.
std::string share_value(FieldSet level, std::string_view value,
                        const std::vector<serve::NodemapOptions>& nodemaps, std::string& wrong) {
  if (value == kNoShareValue) return std::string(value);
  const Field field = level.first();
  if (field == Field::kNodemap) {
    if (value == "default") return "0";
    for (std::size_t i = 0; i < nodemaps.size(); ++i) {
      if (nodemaps[i].name == value) return std::to_string(i + 1);
    }
    wrong = fmt::format("{} is not a nodemap of this file", quote(value));
  } else if (field == Field::kUid || field == Field::kGid || field == Field::kProjid) {
    if (const auto id = read_decimal(value); id && *id < kUnknownId) return std::to_string(*id);
    wrong = fmt::format("{} is not a {}; write its number, or {}", quote(value), level.print_type(),
                        kNoShareValue);
  } else if (value.empty() || value.size() > JobId::kSizeMax) {
    wrong = fmt::format("{} is not a value of {}", quote(value), level.print_type());
  }
  return wrong.empty() ? std::string(value) : std::string();
}

// The path of a node above the jobs, as requests have it; empty after an error.
std::string share_path(const TomlTable& table, const TomlKey& key, std::string_view what,
                       const ServeOptions& options, const serve::SharesOptions& shares) {
  const auto refuse = [&](const std::string& why, std::string_view hint = {}) {
    table.mistakes().add(
        key.at, fmt::format("{}: {} of {} {}", table.name(), what, quote(key.name), why), hint);
    return std::string();
  };
  const std::vector<JobId> values = path_values(key.name);
  if (values.size() > shares.levels.size()) {
    return refuse(
        fmt::format("has a path of {} values; the tree has {} level{} above the jobs",
                    values.size(), shares.levels.size(), shares.levels.size() == 1 ? "" : "s"),
        "the weight of a job is weight= of its rule, or its nodes");
  }
  std::string path, wrong;
  for (std::size_t i = 0; i < values.size() && wrong.empty(); ++i) {
    path += (i == 0 ? "" : "/") +
            share_value(shares.levels[i], values[i].text(), options.nodemaps, wrong);
  }
  return wrong.empty() ? path : refuse("cannot be set: " + wrong);
}

// Calls read(member, path) for each node of a table of nodes.
template <class Read>
void each_node(const TomlTable& table, std::string_view key, std::string_view what,
               std::string_view form, const ServeOptions& options,
               const serve::SharesOptions& shares, Read read) {
  const auto value = table.get(key);
  if (!value) return;
  if (!value->is_table()) {
    table.refuse(key, fmt::format("must be a table such as {}", form));
    return;
  }
  const std::vector<TomlMember> members = value->members();
  if (members.size() > Bounds::kWeightsMax) {
    table.refuse(key, fmt::format("has more than {} nodes", Bounds::kWeightsMax));
    return;
  }
  for (const TomlMember& member : members) {
    const std::string path = share_path(table, member.key, what, options, shares);
    if (path.empty()) continue;
    const auto refuse = [&](std::string_view why, std::string_view hint = {}) {
      table.mistakes().add(
          member.key.at,
          fmt::format("{}: {} of {} {}", table.name(), what, quote(member.key.name), why), hint);
    };
    read(member, path, refuse);
  }
}

void read_weights(const TomlTable& table, const ServeOptions& options,
                  serve::SharesOptions& shares) {
  each_node(
      table, "weights", "the weight", "{ '1001' = 2, '1001/5' = 3 }", options, shares,
      [&](const TomlMember& member, const std::string& path, const auto& refuse) {
        const auto* weight = member.value.template as<std::int64_t>();
        if (weight == nullptr || *weight < 1 ||
            static_cast<std::uint64_t>(*weight) > TreeAllocator::kWeightMax) {
          refuse(fmt::format("must be a whole number from 1 to {}", TreeAllocator::kWeightMax));
        } else if (!shares.weights.emplace(path, static_cast<std::uint64_t>(*weight)).second) {
          refuse("is given twice", "give each node once");
        }
      });
}

void read_accounts(const TomlTable& table, const ServeOptions& options,
                   serve::SharesOptions& shares) {
  each_node(table, "accounts", "the account", "{ '1001' = 'physics', '1001/5' = 'physics/alice' }",
            options, shares,
            [&](const TomlMember& member, const std::string& path, const auto& refuse) {
              const auto* account = member.value.template as<std::string>();
              if (account == nullptr || account->empty() || account->size() > Bounds::kNameMax ||
                  std::count(account->begin(), account->end(), '/') > 1) {
                refuse("is not valid", "expected ACCOUNT, or ACCOUNT/USER");
              } else if (!shares.accounts.emplace(path, *account).second) {
                refuse("is given twice", "give each node once");
              }
            });
}

}  // namespace

void read_shares(const TomlTable& table, ServeOptions& options) {
  const std::string name = service_name(table, options);
  if (name == serve::kDefaultService && !is_named_before(options.services, name)) {
    options.services.emplace_back();
  }
  const auto service = std::find_if(options.services.begin(), options.services.end(),
                                    [&](const auto& one) { return one.name == name; });
  if (service == options.services.end()) return;  // reported
  if (!service->shares.levels.empty()) {
    table.refuse("service", fmt::format("{} has a tree of shares already", quote(name)));
    return;
  }
  if (!table.has("tree")) {
    table.miss("tree", "such as ['projid', 'uid', 'jobid']");
    return;
  }
  std::string text;
  for (const TomlTable::Item& item : table.texts("tree")) {
    text += (text.empty() ? "" : ",") + item.text;
  }
  const auto levels = parse_tree_levels(text);
  if (!levels) {
    refuse_with(table, table.place_of("tree"), "tree", levels.error());
    return;
  }
  service->shares.levels = *levels;
  if (service->adaptive == serve::Adaptive::kOff) {
    table.refuse("tree", "has no effect with adaptive = \"off\"",
                 "set adaptive = \"on\" for the service, or remove the tree");
  }
  read_weights(table, options, service->shares);
  read_accounts(table, options, service->shares);
}

}  // namespace weir::config
