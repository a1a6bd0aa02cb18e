// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/share_level.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/nid.h"

namespace weir {
namespace {

constexpr std::string_view kLast = "jobid";
constexpr const char* kHint =
    "name levels from projid, gid, uid, nodemap, nid, export and subnet/N, with jobid as the last";

tl::unexpected<Error> wrong(std::string_view what) {
  return fail(std::errc::invalid_argument, "tree of shares", what, kHint);
}

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

JobId node_name(const ShareLevel& level, const Attributes& attributes) {
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

Result<std::vector<ShareLevel>> parse_share_levels(std::span<const std::string> names) {
  if (names.empty()) return wrong("a tree without a level");
  if (names.size() > kShareLevelsMax) {
    return wrong(fmt::format("{} levels; the maximum is {}", names.size(), kShareLevelsMax));
  }
  if (names.back() != kLast) return wrong("the last level is not jobid");
  std::vector<ShareLevel> levels;
  for (const std::string& name : names.first(names.size() - 1)) {
    if (name == kLast) return wrong("jobid is named before the last level");
    const Parsed<FieldSet> level = FieldSet::read(name);
    if (!level || level->size() != 1 || level->has(Field::kOpcode)) {
      return wrong(quote(name) + " is not a level");
    }
    if (std::find(levels.begin(), levels.end(), *level) != levels.end()) {
      return wrong(quote(name) + " is named twice");
    }
    levels.push_back(*level);
  }
  return levels;
}

FieldSet fields_of(std::span<const ShareLevel> levels) {
  FieldSet fields;
  for (const ShareLevel& level : levels) fields = fields | level;
  return fields;
}

}  // namespace weir
