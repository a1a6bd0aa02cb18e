// SPDX-License-Identifier: Apache-2.0
#include "weir/target/tree_levels.h"

#include "weir/adapt/share_levels.h"
#include "weir/base/quote.h"

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
  return {};
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
    const FieldSet field = field_of((*levels)[i]);
    if (field.empty()) {
      return refuse("has the level rule, which shares of a server do not support",
                    "use weight= and reserve= of the rules instead");
    }
    above.push_back(field);
  }
  return above;
}

std::string print_tree_levels(const std::vector<FieldSet>& levels) {
  std::string text;
  for (const FieldSet level : levels) text += level.print_type() + ",";
  return text + "jobid";
}

std::string_view level_word(FieldSet level) {
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
