// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/share_level.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/nid.h"

namespace weir {
namespace {

constexpr std::string_view kSubnet = "subnet/";
constexpr std::string_view kLast = "jobid";
constexpr const char* kHint =
    "name levels from projid, gid, uid, nodemap, nid, subnet/N, with jobid as the last";

JobId value_of_nid(const Nid& nid) {
  const std::string text = print_nid(nid);
  if (text.size() <= JobId::kSizeMax) return JobId(text);
  constexpr std::size_t kHashDigits = 16;
  return JobId(
      fmt::format("{}~{:016x}", text.substr(0, JobId::kSizeMax - kHashDigits - 1), nid.hash()));
}

// A mask of the first bits of 64.
std::uint64_t mask_of(unsigned bits) { return bits == 0 ? 0 : ~std::uint64_t{0} << (64 - bits); }

JobId network_of(Nid nid, unsigned bits) {
  if (nid.family == AddressFamily::kIpv4) {
    nid.low &= mask_of(32 + std::min(bits, 32U));
  } else if (nid.family == AddressFamily::kIpv6) {
    nid.high &= mask_of(std::min(bits, 64U));
    nid.low &= mask_of(bits <= 64 ? 0 : bits - 64);
  }
  return value_of_nid(nid);
}

tl::unexpected<Error> wrong(std::string_view what) {
  return fail(std::errc::invalid_argument, "tree of shares", what, kHint);
}

Result<ShareLevel> parse_level(std::string_view name) {
  for (const Field field :
       {Field::kUid, Field::kGid, Field::kProjid, Field::kNodemap, Field::kNid}) {
    if (field_name(field) == name) return ShareLevel{.field = field};
  }
  if (name.starts_with(kSubnet)) {
    const std::string_view number = name.substr(kSubnet.size());
    unsigned bits = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
    if (error == std::errc{} && end == number.data() + number.size() && bits >= 1 && bits <= 128) {
      return ShareLevel{.field = Field::kNid, .subnet_bits = static_cast<std::uint8_t>(bits)};
    }
    return wrong(quote(name) + ": N of subnet/N is a number from 1 to 128");
  }
  return wrong(quote(name) + " is not a level");
}

}  // namespace

JobId ShareLevel::value_of(const Attributes& attributes) const {
  std::uint32_t id = kUnknownId;
  switch (field) {
    case Field::kUid:
      id = attributes.uid;
      break;
    case Field::kGid:
      id = attributes.gid;
      break;
    case Field::kProjid:
      id = attributes.projid;
      break;
    case Field::kNodemap:
      id = attributes.nodemap;
      break;
    case Field::kNid:
      if (attributes.nid.family == AddressFamily::kNone) return JobId(kNone);
      return subnet_bits == 0 ? value_of_nid(attributes.nid)
                              : network_of(attributes.nid, subnet_bits);
    case Field::kJobid:
    case Field::kOpcode:
      break;
  }
  return id == kUnknownId ? JobId(kNone) : JobId(fmt::format_int(id).c_str());
}

std::string ShareLevel::name() const {
  if (subnet_bits > 0) return fmt::format("{}{}", kSubnet, subnet_bits);
  return std::string(field_name(field));
}

Result<std::vector<ShareLevel>> parse_share_levels(std::span<const std::string> names) {
  if (names.empty()) return wrong("a tree without a level");
  if (names.size() > ShareLevel::kLevelsMax) {
    return wrong(fmt::format("{} levels; the maximum is {}", names.size(), ShareLevel::kLevelsMax));
  }
  if (names.back() != kLast) return wrong("the last level is not jobid");
  std::vector<ShareLevel> levels;
  for (const std::string& name : names.first(names.size() - 1)) {
    if (name == kLast) return wrong("jobid is named before the last level");
    Result<ShareLevel> level = parse_level(name);
    if (!level) return tl::unexpected(level.error());
    if (std::find(levels.begin(), levels.end(), *level) != levels.end()) {
      return wrong(quote(name) + " is named twice");
    }
    levels.push_back(*level);
  }
  return levels;
}

FieldSet fields_of(std::span<const ShareLevel> levels) {
  FieldSet fields;
  for (const ShareLevel& level : levels) fields = fields | FieldSet{level.field};
  return fields;
}

}  // namespace weir
