// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/share_levels.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"

namespace weir {
namespace {

struct Field {
  std::string_view name;
  ShareField field;
};

constexpr std::string_view kSubnet = "subnet";
constexpr std::uint8_t kBitsMax = 128;
constexpr Field kFields[] = {
    {"jobid", ShareField::kJobid},   {"uid", ShareField::kUid},         {"gid", ShareField::kGid},
    {"projid", ShareField::kProjid}, {"nodemap", ShareField::kNodemap}, {"nid", ShareField::kNid},
    {"export", ShareField::kExport}, {kSubnet, ShareField::kSubnet},    {"rule", ShareField::kRule},
};

tl::unexpected<Error> refuse(std::string_view where, std::string_view what,
                             const std::string& hint) {
  return fail(std::errc::invalid_argument, quote(where), what, hint);
}

Result<ShareLevel> parse_level(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string_view name = text.substr(0, slash);
  std::vector<std::string_view> names;
  for (const Field& one : kFields) {
    names.push_back(one.name);
    if (one.name != name) continue;
    const bool has_bits = slash != std::string_view::npos;
    if (has_bits != (one.field == ShareField::kSubnet)) {
      return refuse(text, "is not a level",
                    has_bits ? "only subnet has a length, such as subnet/24"
                             : "give the bits of the network, such as subnet/24");
    }
    ShareLevel level{.field = one.field};
    if (!has_bits) return level;
    const std::string_view bits = text.substr(slash + 1);
    const auto read = std::from_chars(bits.data(), bits.data() + bits.size(), level.bits);
    if (read.ec != std::errc() || read.ptr != bits.data() + bits.size() || level.bits == 0 ||
        level.bits > kBitsMax) {
      return refuse(text, "is not a subnet", fmt::format("expected 1 to {} bits", kBitsMax));
    }
    return level;
  }
  const auto meant = nearest(name, names);
  return refuse(text, "is not a level",
                meant
                    ? fmt::format("did you mean {}?", *meant)
                    : fmt::format("expected {}/N or one of: {}", kSubnet, fmt::join(names, ", ")));
}

}  // namespace

Result<std::vector<ShareLevel>> parse_share_levels(std::string_view text) {
  std::vector<ShareLevel> levels;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view one = text.substr(at, comma - at);
    const auto level = parse_level(one);
    if (!level) return tl::unexpected(level.error());
    if (std::find(levels.begin(), levels.end(), *level) != levels.end()) {
      return refuse(one, "is given twice", "give each level once");
    }
    if (levels.size() == kShareLevelsMax) {
      return refuse(text, "has too many levels", fmt::format("give at most {}", kShareLevelsMax));
    }
    levels.push_back(*level);
    at = comma + 1;
  }
  return levels;
}

std::string print_share_levels(const std::vector<ShareLevel>& levels) {
  std::string text;
  for (const ShareLevel& level : levels) {
    for (const Field& one : kFields) {
      if (one.field == level.field) text += (text.empty() ? "" : ",") + std::string(one.name);
    }
    if (level.field == ShareField::kSubnet) text += fmt::format("/{}", level.bits);
  }
  return text;
}

}  // namespace weir
