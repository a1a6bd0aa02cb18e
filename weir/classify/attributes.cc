// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/attributes.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "weir/base/quote.h"

namespace weir {
namespace {

constexpr std::string_view kNames[] = {"jobid", "nid", "opcode", "uid", "gid", "projid", "nodemap"};
static_assert(std::size(kNames) == kFields);

constexpr const char* kTypeHint =
    "expected jobid, nid, opcode, uid, gid, projid, nodemap, some of them joined with '+', or "
    "generic";

std::optional<Field> field_of(std::string_view name) {
  for (unsigned i = 0; i < kFields; ++i) {
    if (kNames[i] == name) return static_cast<Field>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view field_name(Field field) { return kNames[static_cast<unsigned>(field)]; }

Parsed<FieldSet> FieldSet::read(std::string_view text) {
  if (text == "generic") return all();
  FieldSet set;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(text.find('+', at), text.size());
    const std::string_view name = text.substr(at, end - at);
    const std::optional<Field> field = field_of(name);
    if (!field) return mistake(at, quote(name) + " is not a field", kTypeHint);
    set.bits_ = static_cast<std::uint8_t>(set.bits_ | bit(*field));
    if (end == text.size()) return set;
    at = end + 1;
  }
}

Result<FieldSet> FieldSet::parse_type(std::string_view text) {
  if (text.size() > kTypeMax) {
    const Mistake found{kTypeMax,
                        fmt::format("a type of {} bytes; the maximum is {}", text.size(), kTypeMax),
                        "name fewer fields, or use generic for all"};
    return tl::unexpected(found.to_error());
  }
  if (text.size() > 1 && text.ends_with('+')) text.remove_suffix(1);
  Parsed<FieldSet> set = read(text);
  if (!set) return tl::unexpected(set.error().to_error());
  return *set;
}

std::string FieldSet::print_type() const {
  if (*this == all()) return {};
  std::string text;
  for (unsigned i = 0; i < kFields; ++i) {
    if (!has(static_cast<Field>(i))) continue;
    if (!text.empty()) text += '+';
    text += kNames[i];
  }
  return text;
}

Attributes Attributes::only(FieldSet fields) const {
  const auto id = [&](Field field, std::uint32_t value) { return fields.has(field) ? value : 0U; };
  return {
      .job = fields.has(Field::kJobid) ? job : JobId(),
      .nid = fields.has(Field::kNid) ? nid : Nid{},
      .opcode = id(Field::kOpcode, opcode),
      .uid = id(Field::kUid, uid),
      .gid = id(Field::kGid, gid),
      .projid = id(Field::kProjid, projid),
      .nodemap = id(Field::kNodemap, nodemap),
  };
}

}  // namespace weir
