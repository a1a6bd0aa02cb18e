// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/share_level.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "weir/classify/nid.h"

namespace weir {
namespace {

constexpr std::string_view kRule = "rule";

JobId name_of(std::uint32_t id) {
  return id == kUnknownId ? JobId(kNoShareValue) : JobId(fmt::format_int(id).c_str());
}

JobId name_of(const Nid& nid) {
  if (nid.family == AddressFamily::kNone) return JobId(kNoShareValue);
  const std::string text = print_nid(nid);
  if (text.size() <= JobId::kSizeMax) return JobId(text);
  constexpr std::size_t kHashDigits = 16;
  return JobId(
      fmt::format("{}~{:016x}", text.substr(0, JobId::kSizeMax - kHashDigits - 1), nid.hash()));
}

JobId name_of(const ExportName& name) {
  if (name.empty()) return JobId(kNoShareValue);
  std::string text(name.text());
  std::replace(text.begin(), text.end(), '/', ':');
  return JobId(text);
}

}  // namespace

JobId node_name(FieldSet level, const Attributes& attributes, std::string_view rule) {
  if (level == kRuleLevel) return JobId(rule);
  switch (level.first()) {
    case Field::kUid:
      return name_of(attributes.uid);
    case Field::kGid:
      return name_of(attributes.gid);
    case Field::kProjid:
      return name_of(attributes.projid);
    case Field::kNodemap:
      return name_of(attributes.nodemap);
    case Field::kNid:
      return name_of(attributes.nid);
    case Field::kSubnet:
      return name_of(attributes.nid.network(level.subnet_length()));
    case Field::kExport:
      return name_of(attributes.export_name);
    case Field::kJobid:
    case Field::kOpcode:
      break;
  }
  return JobId(kNoShareValue);
}

std::string print_level(FieldSet level) {
  return level == kRuleLevel ? std::string(kRule) : level.print_type();
}

Parsed<FieldSet> read_level(std::string_view text) {
  if (text == kRule) return kRuleLevel;
  return FieldSet::read(text);
}

FieldSet fields_of(std::span<const FieldSet> levels) {
  FieldSet fields;
  for (const FieldSet level : levels) fields = fields | level;
  return fields;
}

}  // namespace weir
