// SPDX-License-Identifier: Apache-2.0
#include "weir/config/toml_table.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::config {

void TomlMistakes::add(TomlPlace at, std::string_view what, std::string_view hint) {
  found_.push_back({at, Error{std::errc::invalid_argument, print_place(file_, at),
                              std::string(what), std::string(hint)}});
}

std::vector<Error> TomlMistakes::in_order() const {
  std::vector<const Found*> sorted;
  sorted.reserve(found_.size());
  for (const Found& found : found_) sorted.push_back(&found);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Found* a, const Found* b) { return a->at < b->at; });
  const std::size_t told = std::min(sorted.size(), kToldMax);
  std::vector<Error> errors;
  errors.reserve(told + 1);
  for (std::size_t i = 0; i < told; ++i) errors.push_back(sorted[i]->error);
  if (sorted.size() > told) {
    errors.push_back({std::errc::invalid_argument, file_,
                      fmt::format("{} more errors", sorted.size() - told), ""});
  }
  return errors;
}

TomlTable::TomlTable(const TomlValue& value, std::string name, TomlMistakes& mistakes,
                     std::vector<std::string_view> keys)
    : value_(value), name_(std::move(name)), mistakes_(mistakes), keys_(std::move(keys)) {
  if (!value_.is_table()) {
    mistakes_.add(at(), fmt::format("{} must be a table", name_));
    return;
  }
  for (const auto& [key, unused] : value_.members()) {
    if (std::find(keys_.begin(), keys_.end(), key.name) != keys_.end()) continue;
    const auto meant = nearest(key.name, keys_);
    if (meant) meant_.push_back(*meant);
    mistakes_.add(key.at, fmt::format("{}: unknown key {}", name_, quote(key.name)),
                  meant ? fmt::format("did you mean {}?", *meant)
                        : fmt::format("the keys are {}", fmt::join(keys_, ", ")));
  }
}

TomlPlace TomlTable::place_of(std::string_view key) const {
  const auto value = get(key);
  return value ? value->at() : at();
}

void TomlTable::refuse(std::string_view key, std::string_view what, std::string_view hint) const {
  mistakes_.add(place_of(key), fmt::format("{}: {} {}", name_, key, what), hint);
}

void TomlTable::miss(std::string_view key, std::string_view hint) const {
  if (std::find(meant_.begin(), meant_.end(), key) == meant_.end()) {
    refuse(key, "is missing", hint);
  }
}

std::string TomlTable::text(std::string_view key, std::string without) const {
  const auto value = get(key);
  if (!value) return without;
  if (const auto* given = value->as<std::string>()) return *given;
  refuse(key, "must be a quoted string");
  return without;
}

bool TomlTable::flag(std::string_view key, bool without) const {
  const auto value = get(key);
  if (!value) return without;
  if (const auto* given = value->as<bool>()) return *given;
  refuse(key, "must be true or false");
  return without;
}

std::uint64_t TomlTable::number(std::string_view key, std::uint64_t without, std::uint64_t least,
                                std::uint64_t most) const {
  const auto value = get(key);
  if (!value) return without;
  const auto* given = value->as<std::int64_t>();
  if (given != nullptr && *given >= 0) {
    const auto count = static_cast<std::uint64_t>(*given);
    if (count >= least && count <= most) return count;
  }
  refuse(key, fmt::format("must be a whole number from {} to {}", least, most));
  return without;
}

std::uint32_t TomlTable::small(std::string_view key, std::uint32_t without, std::uint32_t least,
                               std::uint32_t most) const {
  return static_cast<std::uint32_t>(number(key, without, least, most));
}

Nanoseconds TomlTable::time(std::string_view key, Nanoseconds without, Nanoseconds least,
                            Nanoseconds most) const {
  const auto value = get(key);
  if (!value) return without;
  const auto* given = value->as<std::string>();
  const bool back = given != nullptr && given->starts_with('-');
  const auto parsed = given != nullptr
                          ? parse_duration(std::string_view(*given).substr(back ? 1 : 0))
                          : fail(std::errc::invalid_argument, key, "is not a string");
  if (!parsed) {
    refuse(key, "is not a valid time", "write for example '16ms' or '5s'");
    return without;
  }
  const Nanoseconds time = back ? -*parsed : *parsed;
  if (time >= least && time <= most) return time;
  if (most == Nanoseconds::max()) {
    refuse(key, fmt::format("must be at least {}", print_duration(least)));
  } else {
    refuse(key, fmt::format("must be from {} to {}", print_duration(least), print_duration(most)));
  }
  return without;
}

Bytes TomlTable::size(std::string_view key, Bytes without, Bytes least, Bytes most) const {
  const auto value = get(key);
  if (!value) return without;
  const auto* given = value->as<std::string>();
  const auto* count = value->as<std::int64_t>();
  std::optional<Bytes> size;
  if (given != nullptr) {
    if (const auto parsed = parse_size(*given)) size = *parsed;
  } else if (count != nullptr && *count >= 0) {
    size = Bytes{static_cast<std::uint64_t>(*count)};
  }
  if (!size) {
    refuse(key, "is not a valid size", "write for example '4KiB'");
    return without;
  }
  if (*size >= least && *size <= most) return *size;
  refuse(key, fmt::format("must be from {} to {}", print_size(least), print_size(most)));
  return without;
}

Cost TomlTable::cost(std::string_view key, Cost without) const {
  if (!has(key)) return without;
  const std::string given = text(key, "op");
  if (given == "op") return Cost::op();
  if (given == "bytes") return Cost::bytes();
  constexpr std::string_view kAffine = "affine:";
  std::uint32_t base = 0;
  std::uint32_t per_kib = 0;
  const char* const end = given.data() + given.size();
  if (given.starts_with(kAffine)) {
    const auto first = std::from_chars(given.data() + kAffine.size(), end, base);
    if (first.ec == std::errc() && first.ptr != end && *first.ptr == ':') {
      const auto second = std::from_chars(first.ptr + 1, end, per_kib);
      if (second.ec == std::errc() && second.ptr == end) return Cost::affine(base, per_kib);
    }
  }
  refuse(key, "is not a valid cost", "expected op, bytes or affine:A:B");
  return without;
}

std::size_t TomlTable::word(std::string_view key, std::size_t without,
                            std::initializer_list<std::string_view> words) const {
  const auto value = get(key);
  if (!value) return without;
  if (const auto* given = value->as<std::string>()) {
    const auto* const found = std::find(words.begin(), words.end(), *given);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
    const auto meant = nearest(*given, std::vector<std::string_view>(words));
    refuse(key, fmt::format("cannot be {}", quote(*given)),
           meant ? fmt::format("did you mean '{}'?", *meant)
                 : fmt::format("expected one of '{}'", fmt::join(words, "', '")));
    return without;
  }
  refuse(key, fmt::format("must be one of '{}'", fmt::join(words, "', '")));
  return without;
}

std::vector<TomlTable::Item> TomlTable::texts(std::string_view key) const {
  const auto value = get(key);
  if (!value) return {};
  if (const auto* one = value->as<std::string>()) return {{*one, value->at()}};
  const auto many = value->items();
  if (!many) {
    refuse(key, "must be a list of quoted strings");
    return {};
  }
  std::vector<Item> items;
  items.reserve(many->size());
  for (const TomlValue& item : *many) {
    if (const auto* text = item.as<std::string>()) {
      items.push_back({*text, item.at()});
    } else {
      mistakes_.add(item.at(), fmt::format("{}: {} must contain quoted strings", name_, key));
    }
  }
  return items;
}

std::vector<TomlValue> TomlTable::tables(std::string_view key) const {
  const auto value = get(key);
  if (!value) return {};
  if (value->is_table()) return {*value};
  const auto many = value->items();
  if (!many) {
    refuse(key, "must be a table, or an array of tables");
    return {};
  }
  std::vector<TomlValue> found;
  found.reserve(many->size());
  for (const TomlValue& item : *many) {
    if (item.is_table()) {
      found.push_back(item);
    } else {
      mistakes_.add(item.at(), fmt::format("{}: {} must contain tables", name_, key));
    }
  }
  return found;
}

}  // namespace weir::config
