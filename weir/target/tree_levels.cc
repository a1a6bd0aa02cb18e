// SPDX-License-Identifier: Apache-2.0
#include "weir/target/tree_levels.h"

#include "weir/adapt/share_levels.h"
#include "weir/base/quote.h"
#include "weir/classify/share_level.h"

namespace weir {
namespace {

FieldSet field_of(const ShareLevel& level) {
  switch (level.field) {
    case ShareField::kUid:
      return {Field::kUid};
    case ShareField::kGid:
      return {Field::kGid};
    case ShareField::kProjid:
      return {Field::kProjid};
    case ShareField::kNodemap:
      return {Field::kNodemap};
    case ShareField::kNid:
      return {Field::kNid};
    case ShareField::kExport:
      return {Field::kExport};
    case ShareField::kSubnet:
      return FieldSet::subnet(level.bits);
    case ShareField::kJobid:
    case ShareField::kRule:
      break;
  }
  return kRuleLevel;
}

}  // namespace

Result<std::vector<FieldSet>> parse_tree_levels(std::string_view text) {
  const auto refuse = [&](std::string_view what, std::string_view hint) {
    return fail(std::errc::invalid_argument, "tree " + quote(text), what, hint);
  };
  const auto levels = parse_share_levels(text);
  if (!levels) return refuse(levels.error().where + " " + levels.error().what, levels.error().hint);
  if (levels->back().field != ShareField::kJobid) {
    return refuse("does not end with the jobs", "write jobid as the last level");
  }
  std::vector<FieldSet> above;
  for (std::size_t i = 0; i + 1 < levels->size(); ++i) {
    above.push_back(field_of((*levels)[i]));
  }
  return above;
}

std::string print_tree_levels(const std::vector<FieldSet>& levels) {
  std::string text;
  for (const FieldSet level : levels) text += print_level(level) + ",";
  return text + "jobid";
}

std::string_view level_word(FieldSet level) {
  if (level == kRuleLevel) return "rule";
  switch (level.first()) {
    case Field::kUid:
      return "uid";
    case Field::kGid:
      return "gid";
    case Field::kProjid:
      return "project";
    case Field::kNodemap:
      return "nodemap";
    case Field::kNid:
      return "client";
    case Field::kExport:
      return "export";
    case Field::kSubnet:
      return "subnet";
    case Field::kJobid:
    case Field::kOpcode:
      break;
  }
  return "job";
}

}  // namespace weir
