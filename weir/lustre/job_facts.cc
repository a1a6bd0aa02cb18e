// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/job_facts.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "weir/base/crc32c.h"
#include "weir/base/quote.h"
#include "weir/classify/job_glob.h"

namespace weir::lustre {
namespace {

// An id that can be read in many ways is not searched for longer than this.
constexpr int kStepsMax = 10'000;
constexpr std::string_view kBlanks = " \t\r";

std::optional<std::uint32_t> number_of(std::string_view text) {
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || last != end || number == kUnknownId) return {};
  return number;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The first word, which is removed from the text.
std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

std::uint32_t JobFacts::nodemap_id(std::string_view name) {
  if (name == "default") return 0;
  const std::uint32_t sum = crc32c(name);
  return std::clamp<std::uint32_t>(sum, 1, kUnknownId - 1);
}

Result<JobFacts> JobFacts::parse(std::string_view pattern, std::string_view table) {
  JobFacts facts;
  if (auto read = facts.read_pattern(pattern); !read) return tl::unexpected(read.error());
  if (auto read = facts.read_table(table); !read) return tl::unexpected(read.error());
  return facts;
}

Result<void> JobFacts::read_pattern(std::string_view text) {
  using Kind = Piece::Kind;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      const bool goes_on = !pieces_.empty() && pieces_.back().kind == Kind::kText;
      if (!goes_on) pieces_.push_back({});
      pieces_.back().text += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '.') {  // %.Nx: at most N bytes
      i = std::min(text.find_first_not_of("0123456789", i + 2), text.size()) - 1;
    }
    if (++i >= text.size()) {
      return fail(std::errc::invalid_argument, quote(text), "ends with an incomplete code",
                  "use the codes of jobid_name, such as %e.%u");
    }
    const Kind kind = text[i] == 'u' ? Kind::kUser : text[i] == 'g' ? Kind::kGroup : Kind::kAny;
    pieces_.push_back({.kind = kind});
    if (kind == Kind::kUser) fields_ = fields_ | FieldSet{Field::kUid};
    if (kind == Kind::kGroup) fields_ = fields_ | FieldSet{Field::kGid};
  }
  if (pieces_.size() <= kPiecesMax) return {};
  return fail(std::errc::invalid_argument, quote(text),
              fmt::format("has more than {} codes and texts", kPiecesMax));
}

Result<void> JobFacts::read_line(std::string_view words, Line& line) {
  line.glob = next_word(words);
  bool has_any = false;
  for (std::string_view word = next_word(words); !word.empty(); word = next_word(words)) {
    const std::size_t at = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, at);
    const std::string_view value = word.substr(std::min(at + 1, word.size()));
    const auto refused = [&](std::string_view hint) {
      return fail(std::errc::invalid_argument, quote(word), "is not valid", hint);
    };
    has_any = true;
    if (key == "nodemap" && !value.empty()) {
      line.nodemap = nodemap_id(value);
      fields_ = fields_ | FieldSet{Field::kNodemap};
    } else if (key == "nid") {
      const auto nid = parse_nid(value);
      if (!nid) return refused("a nid is an address and a network, such as 10.0.0.1@tcp");
      line.nid = *nid;
      fields_ = fields_ | FieldSet{Field::kNid};
    } else if (key == "uid" || key == "gid" || key == "projid") {
      const auto number = number_of(value);
      if (!number) return refused("an id is a number below 4294967295");
      (key == "uid" ? line.uid : key == "gid" ? line.gid : line.projid) = number;
      const Field field = key == "uid" ? Field::kUid : key == "gid" ? Field::kGid : Field::kProjid;
      fields_ = fields_ | FieldSet{field};
    } else {
      return refused("expected uid=, gid=, projid=, nid= or nodemap=");
    }
  }
  if (has_any) return {};
  return fail(std::errc::invalid_argument, quote(line.glob), "has no value",
              "expected 'GLOB KEY=VALUE...'");
}

Result<void> JobFacts::read_table(std::string_view text) {
  for (int number = 1; !text.empty(); ++number) {
    std::string_view words = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), words.size() + 1));
    words = words.substr(0, words.find('#'));
    if (words.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    if (lines_.size() == kLinesMax) {
      return fail(std::errc::invalid_argument, fmt::format("line {}", number),
                  fmt::format("the table has more than {} lines", kLinesMax),
                  "use patterns with *");
    }
    Line line;
    if (auto read = read_line(words, line); !read) {
      Error error = read.error();
      error.where = fmt::format("line {}: {}", number, error.where);
      return tl::unexpected(std::move(error));
    }
    lines_.push_back(std::move(line));
  }
  return {};
}

// Codes for any text are as long as possible, those for numbers take whole numbers.
bool JobFacts::match(std::size_t piece, std::string_view rest, Found& found, int& steps) const {
  using Kind = Piece::Kind;
  if (++steps > kStepsMax) return false;
  if (piece == pieces_.size()) return rest.empty();
  const Piece& one = pieces_[piece];
  if (one.kind == Kind::kText) {
    return rest.starts_with(one.text) &&
           match(piece + 1, rest.substr(one.text.size()), found, steps);
  }
  if (one.kind == Kind::kAny) {
    for (std::size_t size = rest.size() + 1; size-- > 0;) {
      if (match(piece + 1, rest.substr(size), found, steps)) return true;
    }
    return false;
  }
  std::size_t digits = 0;
  while (digits < rest.size() && is_digit(rest[digits])) ++digits;
  const auto number = number_of(rest.substr(0, digits));
  if (!number || !match(piece + 1, rest.substr(digits), found, steps)) return false;
  (one.kind == Kind::kUser ? found.uid : found.gid) = number;
  return true;
}

Attributes JobFacts::of(const JobId& job) const {
  Attributes told;
  told.job = job;
  Found found;
  int steps = 0;
  if (match(0, job.text(), found, steps)) {
    told.uid = found.uid.value_or(kUnknownId);
    told.gid = found.gid.value_or(kUnknownId);
  }
  bool has[5] = {};
  const auto take = [](bool& is_set, const auto& value, auto& field) {
    if (is_set || !value) return;
    is_set = true;
    field = *value;
  };
  for (const Line& line : lines_) {
    if (!job_glob_matches(line.glob, job.text())) continue;
    take(has[0], line.uid, told.uid);
    take(has[1], line.gid, told.gid);
    take(has[2], line.projid, told.projid);
    take(has[3], line.nodemap, told.nodemap);
    take(has[4], line.nid, told.nid);
  }
  return told;
}

}  // namespace weir::lustre
