// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>

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
  if (level == kRuleLevel) {
    if (value.size() <= kRuleNameMax && check_rule_name(value)) return std::string(value);
    wrong = fmt::format("{} is not a name of a rule", quote(value));
    return {};
  }
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

// The nodes that a table of [[shares]] lists, by values or names.
class ShareNodes {
 public:
  ShareNodes(const TomlTable& table, const ServeOptions& options, serve::SharesOptions& shares)
      : table_(table), options_(options), shares_(shares) {}

  // Calls read(member, path, refuse) for each node of a key.
  template <class Read>
  void each(std::string_view key, std::string_view what, std::string_view form, Read read) const {
    const auto value = table_.get(key);
    if (!value) return;
    if (!value->is_table()) {
      table_.refuse(key, fmt::format("must be a table such as {}", form));
      return;
    }
    const std::vector<TomlMember> members = value->members();
    if (members.size() > Bounds::kWeightsMax) {
      table_.refuse(key, fmt::format("has more than {} nodes", Bounds::kWeightsMax));
      return;
    }
    for (const TomlMember& member : members) {
      const auto refuse = [&](std::string_view why, std::string_view hint = {}) {
        table_.mistakes().add(
            member.key.at,
            fmt::format("{}: {} of {} {}", table_.name(), what, quote(member.key.name), why), hint);
      };
      const std::string path = path_of(member.key.name, refuse);
      if (!path.empty()) read(member, path, refuse);
    }
  }
  // False if another child of its parent has the name.
  bool add_name(const std::string& path, const std::string& name) {
    const std::size_t value = path.rfind('/') + 1;
    return values_.emplace(path.substr(0, value) + name, path.substr(value)).second &&
           shares_.names.emplace(path, name).second;
  }

 private:
  // The path of a node above the jobs, as requests have it; empty after an error.
  template <class Refuse>
  std::string path_of(const std::string& text, Refuse refuse) const {
    const std::vector<JobId> values = path_values(text);
    if (values.size() > shares_.levels.size()) {
      refuse(
          fmt::format("has a path of {} values; the tree has {} level{} above the jobs",
                      values.size(), shares_.levels.size(), shares_.levels.size() == 1 ? "" : "s"),
          "the weight of a job is weight= of its rule, or its nodes");
      return {};
    }
    std::string path, wrong;
    for (std::size_t i = 0; i < values.size() && wrong.empty(); ++i) {
      path += i == 0 ? "" : "/";
      const auto named = values_.find(path + std::string(values[i].text()));
      path += named != values_.end()
                  ? named->second
                  : share_value(shares_.levels[i], values[i].text(), options_.nodemaps, wrong);
    }
    if (wrong.empty()) return path;
    refuse("cannot be set: " + wrong);
    return {};
  }

  const TomlTable& table_;
  const ServeOptions& options_;
  serve::SharesOptions& shares_;
  std::map<std::string, std::string> values_;  // by the path above, and the name
};

// A name must not be taken for a value.
void read_names(ShareNodes& nodes) {
  nodes.each("names", "the name", "{ '1001' = 'bio', '1001/5' = 'alice' }",
             [&](const TomlMember& member, const std::string& path, const auto& refuse) {
               const auto* name = member.value.template as<std::string>();
               if (name == nullptr || name->empty() || name->size() > JobId::kSizeMax ||
                   name->find('/') != std::string::npos || read_decimal(*name)) {
                 refuse("is not valid",
                        fmt::format("expected 1 to {} bytes without /, and not a number",
                                    JobId::kSizeMax));
               } else if (!nodes.add_name(path, *name)) {
                 refuse("is given twice", "give each node below the same parent a name of its own");
               }
             });
}

void read_weights(const ShareNodes& nodes, serve::SharesOptions& shares) {
  nodes.each(
      "weights", "the weight", "{ '1001' = 2, '1001/5' = 3 }",
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

void read_accounts(const ShareNodes& nodes, serve::SharesOptions& shares) {
  nodes.each("accounts", "the account", "{ '1001' = 'physics', '1001/5' = 'physics/alice' }",
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
  ShareNodes nodes(table, options, service->shares);
  read_names(nodes);
  read_weights(nodes, service->shares);
  read_accounts(nodes, service->shares);
}

}  // namespace weir::config
