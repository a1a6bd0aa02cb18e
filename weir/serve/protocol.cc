// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/protocol.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"

namespace weir::serve {
namespace {

constexpr std::size_t kNameMax = 15;

struct Kinds {
  std::vector<std::unique_ptr<const ProtocolKind>> all;
  const ProtocolKind* standard = nullptr;
};

Kinds& kinds() {
  static Kinds kinds;
  return kinds;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

}  // namespace

Result<void> add_protocol(ProtocolKind kind, Standard standard) {
  const std::string where = "protocol " + quote(kind.name);
  if (!is_name(kind.name)) {
    return fail(std::errc::invalid_argument, where, "is not a valid name",
                fmt::format("use up to {} of a-z and 0-9", kNameMax));
  }
  if (kind.begin == nullptr) {
    return fail(std::errc::invalid_argument, where, "has no sessions", "set ProtocolKind::begin");
  }
  for (const auto& one : kinds().all) {
    if (one->name == kind.name) {
      return fail(std::errc::file_exists, where, "is already registered",
                  "use another name, or add it only once");
    }
  }
  kinds().all.push_back(std::make_unique<const ProtocolKind>(std::move(kind)));
  if (standard == Standard::kYes) kinds().standard = kinds().all.back().get();
  return {};
}

const std::vector<std::unique_ptr<const ProtocolKind>>& protocol_kinds() { return kinds().all; }

Result<const ProtocolKind*> find_protocol(std::string_view name) {
  if (name.empty() && kinds().standard != nullptr) return kinds().standard;
  std::vector<std::string_view> names;
  for (const auto& kind : kinds().all) {
    if (kind->name == name) return kind.get();
    names.push_back(kind->name);
  }
  std::string hint = names.empty() ? "this program has no protocols"
                                   : fmt::format("available: {}", fmt::join(names, ", "));
  if (const auto meant = nearest(name, names)) {
    hint = fmt::format("did you mean {}? {}", *meant, hint);
  }
  return fail(std::errc::no_such_file_or_directory, quote(name), "no such protocol", hint);
}

}  // namespace weir::serve
