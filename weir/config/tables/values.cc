// SPDX-License-Identifier: Apache-2.0
#include "weir/config/tables/values.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/config/serve_config.h"

namespace weir::config {
namespace {

using Bounds = ServeConfigBounds;

}  // namespace

void refuse_with(const TomlTable& table, TomlPlace at, std::string_view what, const Error& error) {
  const std::string where = error.where.empty() ? "" : error.where + ": ";
  table.mistakes().add(at, fmt::format("{}: {}: {}{}", table.name(), what, where, error.what),
                       error.hint);
}

std::string bounded_text(const TomlTable& table, std::string_view key, std::size_t most) {
  std::string text = table.text(key, "");
  if (text.size() > most) {
    table.refuse(key, fmt::format("is {} bytes long; the maximum is {}", text.size(), most));
  } else if (text.find('\0') != std::string::npos) {
    table.refuse(key, "contains a NUL byte");
  } else {
    return text;
  }
  return {};
}

std::string plain_name(const TomlTable& table, std::string without) {
  std::string name = table.text("name", std::move(without));
  if (serve::is_plain_name(name)) return name;
  const auto given = table.get("name");
  if (!given) {
    table.miss("name");
  } else if (given->as<std::string>() != nullptr) {
    table.refuse("name", "is not a valid name",
                 fmt::format("expected 1 to {} letters, digits, _ and -", Bounds::kPlainNameMax));
  }
  return {};
}

std::optional<NidList> read_nids(const TomlTable& table, std::string_view key) {
  std::string joined;
  bool is_right = true;
  for (const TomlTable::Item& item : table.texts(key)) {
    if (const auto list = NidList::parse(item.text); !list) {
      refuse_with(table, item.at, fmt::format("{} {}", key, quote(item.text)), list.error());
      is_right = false;
    }
    joined += joined.empty() ? item.text : " " + item.text;
  }
  if (joined.empty() || !is_right) return std::nullopt;
  auto list = NidList::parse(joined);
  if (!list) {
    refuse_with(table, table.place_of(key), key, list.error());
    return std::nullopt;
  }
  return *std::move(list);
}

bool is_reachable(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || address.find("//") != address.npos) {
    return false;
  }
  const std::string_view port = address.substr(colon + 1);
  return !port.empty() && port.size() <= 5 &&
         std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         address.find_first_of(" \t,") == address.npos;
}

std::string service_name(const TomlTable& table, const serve::ServeOptions& options) {
  std::string name = table.text("service", std::string(serve::kDefaultService));
  if (name != serve::kDefaultService && !is_named_before(options.services, name)) {
    std::vector<std::string_view> names = {serve::kDefaultService};
    for (const serve::ServiceOptions& service : options.services) names.push_back(service.name);
    const auto meant = nearest(name, names);
    table.refuse(
        "service", fmt::format("{} does not exist", quote(name)),
        meant ? fmt::format("did you mean {}?", *meant) : "add a [[service]] of that name");
  }
  return name;
}

}  // namespace weir::config
