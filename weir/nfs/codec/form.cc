// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/form.h"

#include "weir/base/assert.h"

namespace weir::nfs {
namespace {

constexpr bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Types that have a letter. RFC 1813: s sattr3, p post_op_attr, w wcc_data, h post_op_fh3.
// RFC 7863: b bitmap4, a fattr4, c callback_sec_parms4, d open_delegation4, e nfsace4,
// i nfs_impl_id4, n netloc4, q channel_attrs4, r write_response4. The delegations 4 and 5 are those
// of RFC 9754, with the form of 1 and 2.
constexpr std::string_view named(char letter) {
  switch (letter) {
    case 'a':
      return "bo";
    case 'b':
      return "[4]";
    case 'c':
      return "(0:|1:4o8[4]|6:4oo)";
    case 'd':
      return "(0:|1,4:20e|2,5:20(1,2:8)e|3:(1,2:4|*:))";
    case 'e':
      return "12o";
    case 'h':
      return "(0:|1:o)";
    case 'i':
      return "oo12";
    case 'n':
      return "(1,2:o|3:oo)";
    case 'p':
      return "(0:|1:84)";
    case 'q':
      return "24[4]";
    case 'r':
      return "[16]20";
    case 's':
      return "(0:|1:4)(0:|1:4)(0:|1:4)(0:|1:8)(0,1:|2:8)(0,1:|2:8)";
    case 'w':
      return "(0:|1:24)p";
    default:
      return {};
  }
}

std::uint32_t take_number(std::string_view& text) {
  WEIR_ASSERT(!text.empty() && is_digit(text.front()));
  std::uint32_t number = 0;
  while (!text.empty() && is_digit(text.front())) {
    number = number * 10 + static_cast<std::uint32_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  return number;
}

// The text up to the matching closing bracket; advances `text` past it.
std::string_view take_group(std::string_view& text) {
  std::size_t end = 0;
  for (int depth = 1; depth > 0; ++end) {
    WEIR_ASSERT(end < text.size());
    const char letter = text[end];
    if (letter == '(' || letter == '[' || letter == '{') ++depth;
    if (letter == ')' || letter == ']' || letter == '}') --depth;
  }
  const std::string_view group = text.substr(0, end - 1);
  text.remove_prefix(end);
  return group;
}

// The next of the forms of a union, up to a `|` that is not in a group.
std::string_view take_arm(std::string_view& arms) {
  std::size_t end = 0;
  for (int depth = 0; end < arms.size() && (depth > 0 || arms[end] != '|'); ++end) {
    const char letter = arms[end];
    if (letter == '(' || letter == '[' || letter == '{') ++depth;
    if (letter == ')' || letter == ']' || letter == '}') --depth;
  }
  const std::string_view arm = arms.substr(0, end);
  arms.remove_prefix(end < arms.size() ? end + 1 : end);
  return arm;
}

// Whether the arm "0,3:o" is for the number; leaves the text after the colon.
bool take_labels(std::string_view& arm, std::uint32_t number) {
  bool fits = false;
  for (;;) {
    if (!arm.empty() && arm.front() == '*') {
      fits = true;
      arm.remove_prefix(1);
    } else {
      fits |= take_number(arm) == number;
    }
    WEIR_ASSERT(!arm.empty() && (arm.front() == ',' || arm.front() == ':'));
    const bool last = arm.front() == ':';
    arm.remove_prefix(1);
    if (last) return fits;
  }
}

std::uint32_t walk_union(XdrReader& reader, std::string_view arms) {
  const std::uint32_t number = reader.u32();
  if (!reader.good()) return 0;
  while (!arms.empty()) {
    std::string_view arm = take_arm(arms);
    if (take_labels(arm, number)) {
      walk(reader, arm);
      return number;
    }
  }
  reader.fail(XdrState::kUnknown);
  return number;
}

void walk_array(XdrReader& reader, std::string_view element) {
  const std::uint32_t count = reader.u32();
  // So that a claimed count of 2^32 elements takes no time.
  if (count > reader.left() / 4) reader.fail(XdrState::kShort);
  if (element == "4") {
    reader.skip(std::uint64_t{count} * 4);
    return;
  }
  for (std::uint32_t i = 0; i < count && reader.good(); ++i) walk(reader, element);
}

void walk_list(XdrReader& reader, std::string_view element) {
  while (reader.good()) {
    const std::uint32_t follows = reader.u32();
    if (follows == 0) return;
    if (follows != 1) reader.fail(XdrState::kUnknown);
    walk(reader, element);
  }
}

}  // namespace

std::uint32_t walk(XdrReader& reader, std::string_view form) {
  std::uint32_t choice = 0;
  while (!form.empty() && reader.good()) {
    const char letter = form.front();
    if (is_digit(letter)) {
      reader.skip(take_number(form));
      continue;
    }
    form.remove_prefix(1);
    if (letter == ' ') continue;
    if (letter == 'o') {
      reader.opaque();
    } else if (letter == '(') {
      choice = walk_union(reader, take_group(form));
    } else if (letter == '[') {
      walk_array(reader, take_group(form));
    } else if (letter == '{') {
      walk_list(reader, take_group(form));
    } else {
      const std::string_view type = named(letter);
      WEIR_ASSERT(!type.empty(), letter);
      walk(reader, type);
    }
  }
  return choice;
}

}  // namespace weir::nfs
