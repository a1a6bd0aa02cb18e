// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/attributes.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/number.h"

namespace weir {
namespace {

constexpr std::string_view kNames[] = {"jobid",  "nid",     "opcode", "uid",   "gid",
                                       "projid", "nodemap", "export", "subnet"};
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

// FIELD or subnet/N
Parsed<FieldSet> read_one(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string_view name = text.substr(0, slash);
  const bool has_length = slash != std::string_view::npos;
  const std::optional<Field> field = field_of(name);
  if (!field || (has_length && field != Field::kSubnet)) {
    return mistake(0, quote(text) + " is not a field", kTypeHint);
  }
  if (field != Field::kSubnet) return FieldSet{*field};
  const auto length = read_decimal(has_length ? text.substr(slash + 1) : std::string_view());
  if (!length || *length < 1 || *length > FieldSet::kSubnetMax) {
    return mistake(0, quote(text) + " is not a subnet",
                   fmt::format("expected subnet/N, N from 1 to {}", FieldSet::kSubnetMax));
  }
  return FieldSet::subnet(static_cast<unsigned>(*length));
}

}  // namespace

std::string_view field_name(Field field) { return kNames[static_cast<unsigned>(field)]; }

Parsed<FieldSet> FieldSet::read(std::string_view text) {
  if (text == "generic") return generic();
  FieldSet set;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(text.find('+', at), text.size());
    auto one = read_one(text.substr(at, end - at));
    if (!one) return tl::unexpected(std::move(one.error()).moved_by(at));
    const bool has_subnet = set.has(Field::kSubnet);
    if ((one->has(Field::kSubnet) && (has_subnet || set.has(Field::kNid))) ||
        (one->has(Field::kNid) && has_subnet)) {
      return mistake(at, quote(text.substr(at, end - at)) + " with another part of the address",
                     "give nid, or one subnet/N");
    }
    set = set | *one;
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
  if (set->has(Field::kExport) || set->has(Field::kSubnet)) {
    return tl::unexpected(Mistake{0, quote(text) + " has fields that are not part of a type",
                                  "rules of any type may use export, and by=export or by=subnet/N"}
                              .to_error());
  }
  return *set;
}

std::string FieldSet::print_type() const {
  if (*this == generic()) return {};
  std::string text;
  for (unsigned i = 0; i < kFields; ++i) {
    if (!has(static_cast<Field>(i))) continue;
    if (!text.empty()) text += '+';
    text += kNames[i];
    if (static_cast<Field>(i) == Field::kSubnet) text += fmt::format("/{}", subnet_length_);
  }
  return text;
}

Attributes Attributes::only(FieldSet fields) const {
  const auto id = [&](Field field, std::uint32_t value) { return fields.has(field) ? value : 0U; };
  return {
      .job = fields.has(Field::kJobid) ? job : JobId(),
      .nid = fields.has(Field::kNid)      ? nid
             : fields.has(Field::kSubnet) ? nid.network(fields.subnet_length())
                                          : Nid{},
      .opcode = id(Field::kOpcode, opcode),
      .uid = id(Field::kUid, uid),
      .gid = id(Field::kGid, gid),
      .projid = id(Field::kProjid, projid),
      .nodemap = id(Field::kNodemap, nodemap),
      .export_name = fields.has(Field::kExport) ? export_name : ExportName(),
  };
}

}  // namespace weir
