// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/number.h"

namespace weir {
namespace {

constexpr unsigned kNoDigit = 99;

unsigned digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return kNoDigit;
}

std::optional<std::uint64_t> read_in_base(std::string_view text, unsigned base) {
  if (text.empty()) return std::nullopt;
  std::uint64_t number = 0;
  bool fits = true;
  for (const char c : text) {
    const unsigned digit = digit_of(c);
    if (digit >= base) return std::nullopt;
    std::uint64_t next = 0;
    fits = fits && !__builtin_mul_overflow(number, base, &next) &&
           !__builtin_add_overflow(next, digit, &next);
    number = next;
  }
  return fits ? number : UINT64_MAX;
}

}  // namespace

std::optional<std::uint64_t> read_number(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) return read_in_base(text.substr(2), 16);
  if (text.size() > 1 && text.front() == '0') return read_in_base(text.substr(1), 8);
  return read_in_base(text, 10);
}

std::optional<std::uint64_t> read_decimal(std::string_view text) { return read_in_base(text, 10); }

std::optional<std::uint64_t> read_count(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return read_decimal(text);
}

}  // namespace weir
