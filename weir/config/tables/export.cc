// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "weir/base/control_characters.h"
#include "weir/base/units.h"
#include "weir/config/serve_config.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Bounds = ServeConfigBounds;

void read_blocks(const TomlTable& table, BlockSizes& blocks) {
  const auto read = [&](std::string_view key, std::uint32_t without) {
    return static_cast<std::uint32_t>(
        table.size(key, Bytes{without}, Bytes{1}, Bytes{kPayloadMax}).count());
  };
  blocks.minimum = read("block_min", blocks.minimum);
  blocks.preferred = read("block_preferred", std::max(blocks.preferred, blocks.minimum));
  blocks.maximum = read("block_max", blocks.maximum);
  // A size that every minimum divides: that of the store is not known yet.
  constexpr std::uint64_t kAnySize = std::uint64_t{1} << 62;
  if (are_valid(blocks, kAnySize)) return;
  const std::string_view given = table.has("block_min")         ? "block_min"
                                 : table.has("block_preferred") ? "block_preferred"
                                                                : "block_max";
  table.refuse(
      given, "conflicts with the other block sizes",
      "block_min is a power of 2 up to 64KiB, block_preferred a power of 2 of at least "
      "512B and block_min, block_max a multiple of block_min from block_preferred to 64MiB");
}

void read_store(const TomlTable& table, serve::StoreOptions& store) {
  if (!table.has("store")) {
    table.miss("store", "such as 'file:/srv/scratch.img' or 'memory:1GiB'");
    return;
  }
  const auto parsed = serve::parse_store(bounded_text(table, "store", Bounds::kPathMax));
  if (!parsed) {
    refuse_with(table, table.place_of("store"), "store", parsed.error());
    return;
  }
  store = *parsed;
  using Kind = serve::StoreOptions::Kind;
  if (table.has("size")) {
    if (store.kind != Kind::kFile) {
      table.refuse(
          "size",
          store.kind == Kind::kMemory ? "is already given in store" : "cannot be set for a device",
          "remove it");
    } else if (store.size) {
      table.refuse("size", "is already given in store", "remove one of them");
    }
    constexpr Bytes kMost{std::uint64_t{1} << 62};
    store.size = table.size("size", Bytes{1}, Bytes{1}, kMost);
  }
  if (table.flag("direct", false)) {
    if (store.kind == Kind::kMemory) table.refuse("direct", "has no effect for memory");
    store.direct = true;
  }
  if (table.flag("force", false)) {
    if (store.kind != Kind::kDevice) table.refuse("force", "applies to devices only", "remove it");
    store.force = true;
  }
}

}  // namespace

void read_export(const TomlTable& table, ServeOptions& options) {
  if (!has_room(table, options.exports, Bounds::kExportsMax)) return;
  serve::ExportOptions exported;
  if (!table.has("name")) table.miss("name", "'' serves clients that name no export");
  exported.name = bounded_text(table, "name", Bounds::kNameMax);
  if (exported.name.find_first_of(",/=") != std::string::npos) {
    table.refuse("name", "is not a valid name",
                 "a name cannot contain , / or =, which separate claims");
  } else if (has_control(exported.name)) {
    table.refuse("name", "contains control characters", "remove them");
  }
  if (is_named_before(options.exports, exported.name)) {
    table.refuse("name", "is used twice");
  }
  read_store(table, exported.store);
  exported.read_only = table.flag("read_only", false);
  exported.description = bounded_text(table, "description", Bounds::kDescriptionMax);
  if (has_control(exported.description)) {
    table.refuse("description", "contains control characters", "remove them");
  }
  read_blocks(table, exported.blocks);
  const Bytes payload{exported.blocks.maximum};
  if (payload > options.limits.connection_memory) {
    table.refuse("block_max",
                 fmt::format("is {}, which exceeds the server's connection_memory of {}",
                             print_size(payload), print_size(options.limits.connection_memory)),
                 "lower block_max or raise connection_memory");
  }
  exported.service = service_name(table, options);
  options.exports.push_back(std::move(exported));
}

}  // namespace weir::config
