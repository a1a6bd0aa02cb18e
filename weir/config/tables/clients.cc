// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "weir/config/serve_config.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Bounds = ServeConfigBounds;

}  // namespace

void read_nodemap(const TomlTable& table, ServeOptions& options) {
  if (!has_room(table, options.nodemaps, Bounds::kNodemapsMax)) return;
  const std::string name = plain_name(table, "");
  auto nids = read_nids(table, "nids");
  if (!table.has("nids")) table.miss("nids", "such as ['10.0.0.[1-9]@tcp']");
  if (name == "default") {
    table.refuse("name", "is reserved for the nodemap of all other clients", "use another name");
  } else if (is_named_before(options.nodemaps, name)) {
    table.refuse("name", "is used twice");
  }
  // Also after an error, so that rules that use it are not reported too.
  options.nodemaps.push_back({name, nids ? *std::move(nids) : NidList{}});
}

void read_groups(const TomlTable& table, serve::GroupsOptions& groups) {
  groups.length = table.time("length", groups.length, kGroupLengthMin, kGroupLengthMax);
  groups.quiesce = table.flag("quiesce", groups.quiesce);
  groups.quiet_max = table.time("quiet_max", groups.quiet_max, kGroupLengthMin, kGroupLengthMax);
}

void read_group(const TomlTable& table, ServeOptions& options) {
  std::vector<serve::ClientGroup>& groups = options.groups.groups;
  if (!has_room(table, groups, Bounds::kClientGroupsMax)) return;
  serve::ClientGroup group;
  group.name = plain_name(table, "");
  if (is_named_before(groups, group.name)) table.refuse("name", "is used twice");
  if (group.name == serve::kNoGroup)
    table.refuse("name", "is reserved for clients without a group");
  if (!table.has("nids")) table.miss("nids", "such as ['10.0.0.[1-9]@tcp']");
  if (auto nids = read_nids(table, "nids")) group.nids = *std::move(nids);
  for (const TomlTable::Item& item : table.texts("nids")) group.nids_text += item.text + ' ';
  if (table.has("length")) {
    group.length = table.time("length", options.groups.length, kGroupLengthMin, kGroupLengthMax);
  }
  groups.push_back(std::move(group));
}

}  // namespace weir::config
