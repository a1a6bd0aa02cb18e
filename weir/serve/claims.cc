// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/claims.h"

#include <algorithm>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/number.h"

namespace weir::serve {
namespace {

constexpr std::string_view kSeparators = ",/";
constexpr const char* kHint = "expected NAME[,job=ID][,uid=N][,gid=N][,project=N]";

tl::unexpected<Error> refuse(std::string_view pair, std::string_view what) {
  return fail(std::errc::invalid_argument, {}, fmt::format("{} {}", quote(pair), what), kHint);
}

Result<void> read_claim(std::string_view pair, Claims& claims) {
  const std::size_t equals = std::min(pair.find('='), pair.size());
  const std::string_view key = pair.substr(0, equals);
  const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
  if (key == "job") {
    if (claims.job) return refuse(pair, "is claimed twice");
    if (value.empty() || value.size() > JobId::kSizeMax) {
      return refuse(pair, "is not a valid job: an id has 1 to 31 bytes");
    }
    claims.job = JobId(value);
    return {};
  }
  std::optional<std::uint32_t>* const id = key == "uid"       ? &claims.uid
                                           : key == "gid"     ? &claims.gid
                                           : key == "project" ? &claims.project
                                                              : nullptr;
  if (id == nullptr) return refuse(pair, "is not a claim");
  if (*id) return refuse(pair, "is claimed twice");
  const auto number = read_number(value);
  if (!number || *number >= UINT32_MAX) return refuse(pair, "is not a valid id");
  *id = static_cast<std::uint32_t>(*number);
  return {};
}

}  // namespace

Result<AskedName> parse_asked_name(std::string_view text) {
  AskedName asked;
  std::size_t end = std::min(text.find_first_of(kSeparators), text.size());
  asked.name = text.substr(0, end);
  while (end < text.size()) {
    text.remove_prefix(end + 1);
    end = std::min(text.find_first_of(kSeparators), text.size());
    if (auto read = read_claim(text.substr(0, end), asked.claims); !read) {
      return tl::unexpected(read.error());
    }
  }
  return asked;
}

}  // namespace weir::serve
