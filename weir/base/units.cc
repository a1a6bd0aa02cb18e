// SPDX-License-Identifier: Apache-2.0
#include "weir/base/units.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t power(std::uint64_t base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

// The first spelling of a factor is the one that is printed.
constexpr std::array kCountUnits = {
    Unit{"", 1},
    Unit{"k", power(1000, 1)},
    Unit{"M", power(1000, 2)},
    Unit{"G", power(1000, 3)},
    Unit{"T", power(1000, 4)},
    Unit{"P", power(1000, 5)},
    Unit{"E", power(1000, 6)},
    Unit{"K", power(1000, 1)},
};
constexpr std::array kSizeUnits = {
    Unit{"B", 1},
    Unit{"KiB", power(1024, 1)},
    Unit{"MiB", power(1024, 2)},
    Unit{"GiB", power(1024, 3)},
    Unit{"TiB", power(1024, 4)},
    Unit{"PiB", power(1024, 5)},
    Unit{"EiB", power(1024, 6)},
    Unit{"kB", power(1000, 1)},
    Unit{"KB", power(1000, 1)},
    Unit{"MB", power(1000, 2)},
    Unit{"GB", power(1000, 3)},
    Unit{"TB", power(1000, 4)},
    Unit{"PB", power(1000, 5)},
    Unit{"EB", power(1000, 6)},
};
constexpr std::array kTimeUnits = {
    Unit{"ns", 1},
    Unit{"us", 1'000},
    Unit{"ms", 1'000'000},
    Unit{"s", 1'000'000'000},
    Unit{"min", 60'000'000'000},
    Unit{"h", 3'600'000'000'000},
    Unit{"d", 86'400'000'000'000},
};

constexpr std::string_view kCountExample = "write for example 1000, 20k or 1.5M";
constexpr std::string_view kSizeExample = "write for example 4096, 64KiB or 1.5GB";
constexpr std::string_view kTimeExample = "write for example 100ms, 1.5s or 2h";

enum class BareNumber : std::uint8_t { kAllowed, kRefused };

// The quantity being parsed: its name in messages, its units, and whether a unit is required.
struct Grammar {
  std::string_view name;
  std::span<const Unit> units;
  BareNumber bare;
  std::string_view example;
};

constexpr Grammar kCount{"count", kCountUnits, BareNumber::kAllowed, kCountExample};
constexpr Grammar kSize{"size", kSizeUnits, BareNumber::kAllowed, kSizeExample};
constexpr Grammar kDuration{"duration", kTimeUnits, BareNumber::kRefused, kTimeExample};
constexpr Grammar kRate{"rate", kCountUnits, BareNumber::kAllowed,
                        "write for example 1000, 20k/s or 1/d"};
constexpr Grammar kBandwidth{"bandwidth", kSizeUnits, BareNumber::kRefused,
                             "write for example 500MiB/s or 50MB/s"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// digits / 10^decimals * factor: kept apart so that no digit is lost before the end.
struct Number {
  std::uint64_t digits = 0;
  int decimals = 0;
  std::uint64_t factor = 1;

  Wide numerator() const { return Wide{digits} * factor; }
  std::uint64_t denominator() const { return power(10, decimals); }
};

tl::unexpected<Error> refuse(std::string_view text, std::string_view what, std::string_view hint) {
  return fail(std::errc::invalid_argument, quote(text), what, hint);
}

tl::unexpected<Error> too_large(std::string_view text, const Grammar& grammar,
                                std::string_view limit) {
  return fail(std::errc::result_out_of_range, quote(text),
              fmt::format("{} is too large", grammar.name), fmt::format("at most {}", limit));
}

// Removes the digits from the front of `rest`. Trailing zeros after the point do not count towards
// the limit of digits.
Result<Number> take_number(std::string_view& rest, std::string_view text, const Grammar& grammar) {
  Number number;
  bool any = false, point = false;
  std::size_t i = 0;
  int pending_zeros = 0;  // after the point, not yet known to be significant
  for (; i < rest.size(); ++i) {
    const char c = rest[i];
    if (c == '.' && any && !point) {
      point = true;
      continue;
    }
    if (!is_digit(c)) break;
    any = true;
    if (point && c == '0') {
      ++pending_zeros;
      continue;
    }
    for (int place = point ? pending_zeros : 0; place >= 0; --place) {
      const Wide digits =
          Wide{number.digits} * 10 + (place == 0 ? static_cast<unsigned>(c - '0') : 0U);
      if (digits > UINT64_MAX || number.decimals + (point ? 1 : 0) > 18) {
        return fail(std::errc::result_out_of_range, quote(text),
                    fmt::format("{} has too many digits", grammar.name), "at most 19 digits");
      }
      number.digits = static_cast<std::uint64_t>(digits);
      if (point) ++number.decimals;
    }
    pending_zeros = 0;
  }
  if (!any || rest[i - 1] == '.') {
    const bool negative = rest.starts_with('-');
    return refuse(text,
                  negative ? fmt::format("{} must not be negative", grammar.name)
                           : fmt::format("{} must start with a number", grammar.name),
                  grammar.example);
  }
  rest.remove_prefix(i);
  return number;
}

std::string list_of(std::span<const Unit> units) {
  std::string list;
  for (const Unit& unit : units) {
    if (!unit.name.empty()) list += (list.empty() ? "" : " ") + std::string(unit.name);
  }
  return list;
}

const Unit* find_unit(std::string_view name, std::span<const Unit> units) {
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& unit) { return unit.name == name; });
  return found == units.end() ? nullptr : &*found;
}

// The unit that was probably meant: wrong case, or a missing B.
std::string_view similar_unit(std::string_view name, std::span<const Unit> units) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const auto same = [&](std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](char x, char y) { return lower(x) == lower(y); });
  };
  for (const Unit& unit : units) {
    if (same(name, unit.name) || same(std::string(name) + "iB", unit.name)) return unit.name;
  }
  return {};
}

Result<Number> parse_number(std::string_view part, std::string_view text, const Grammar& grammar) {
  std::string_view rest = part;
  auto number = take_number(rest, text, grammar);
  if (!number) return number;
  if (rest.empty() && grammar.bare == BareNumber::kAllowed) return number;
  if (rest.empty()) {
    return refuse(text, fmt::format("{} needs a unit", grammar.name), grammar.example);
  }
  if (const Unit* unit = find_unit(rest, grammar.units)) {
    number->factor = unit->factor;
    return number;
  }
  const std::string_view similar = similar_unit(rest, grammar.units);
  return refuse(text, fmt::format("{} has the unknown unit {}", grammar.name, quote(rest)),
                similar.empty() ? fmt::format("units are {}", list_of(grammar.units))
                                : fmt::format("did you mean {}?", similar));
}

Result<std::uint64_t> parse_whole(std::string_view text, const Grammar& grammar,
                                  std::uint64_t limit, std::string_view limit_text) {
  const auto number = parse_number(text, text, grammar);
  if (!number) return tl::unexpected(number.error());
  if (number->numerator() % number->denominator() != 0) {
    return refuse(text, fmt::format("{} is not a whole number", grammar.name), grammar.example);
  }
  const Wide value = number->numerator() / number->denominator();
  if (value > limit) return too_large(text, grammar, limit_text);
  return static_cast<std::uint64_t>(value);
}

// The time after the slash: "s", "20ms". Any time that a Rate can hold, so that every Rate can be
// printed and parsed again.
Result<Nanoseconds> parse_per(std::string_view per, std::string_view text, const Grammar& grammar) {
  if (per.empty()) return refuse(text, "no time after the '/'", grammar.example);
  const std::string with_number = is_digit(per.front()) ? std::string(per) : "1" + std::string(per);
  const auto ns = parse_whole(with_number, kDuration, INT64_MAX, "292 years");
  if (!ns) return refuse(text, "the time after the '/' is not valid", kTimeExample);
  if (*ns == 0) return refuse(text, "the time after the '/' is zero", kTimeExample);
  return Nanoseconds{static_cast<std::int64_t>(*ns)};
}

Wide gcd(Wide a, Wide b) { return b == 0 ? a : gcd(b, a % b); }

Result<Rate> parse_per_time(std::string_view text, const Grammar& grammar) {
  const std::size_t slash = text.find('/');
  const auto number = parse_number(text.substr(0, slash), text, grammar);
  if (!number) return tl::unexpected(number.error());
  Nanoseconds time = std::chrono::seconds{1};
  if (slash != std::string_view::npos) {
    const auto per = parse_per(text.substr(slash + 1), text, grammar);
    if (!per) return tl::unexpected(per.error());
    time = *per;
  }
  if (number->digits == 0) {
    return refuse(text, fmt::format("{} must not be zero", grammar.name), grammar.example);
  }
  Wide tokens = number->numerator();
  Wide time_ns = Wide{number->denominator()} * static_cast<std::uint64_t>(time.count());
  const Wide common = gcd(tokens, time_ns);
  tokens /= common;
  time_ns /= common;
  if (tokens > UINT64_MAX || tokens > time_ns * kTokensPerNanosecondMax) {
    return too_large(text, grammar, "10^12 per second");
  }
  if (time_ns > INT64_MAX) {
    return refuse(text, fmt::format("{} is too small or has too many digits", grammar.name),
                  grammar.example);
  }
  return Rate(Tokens{static_cast<std::uint64_t>(tokens)},
              Nanoseconds{static_cast<std::int64_t>(time_ns)});
}

std::string print_in(std::uint64_t value, std::span<const Unit> units) {
  const Unit* best = &units.front();
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0 && unit.factor > best->factor) best = &unit;
  }
  return fmt::format("{}{}", value / best->factor, best->name);
}

std::string print_per_time(Rate rate, std::span<const Unit> units) {
  for (const std::string_view name : {"s", "min", "h", "d"}) {
    const Wide per = Wide{rate.tokens()} * find_unit(name, kTimeUnits)->factor;
    if (per % rate.time_ns() == 0 && per / rate.time_ns() <= UINT64_MAX) {
      const auto whole = static_cast<std::uint64_t>(per / rate.time_ns());
      return fmt::format("{}/{}", print_in(whole, units), name);
    }
  }
  return fmt::format("{}/{}", print_in(rate.tokens(), units), print_in(rate.time_ns(), kTimeUnits));
}

}  // namespace

Result<std::uint64_t> parse_count(std::string_view text) {
  return parse_whole(text, kCount, UINT64_MAX, "18446744073709551615");
}

Result<Bytes> parse_size(std::string_view text) {
  return parse_whole(text, kSize, UINT64_MAX, "18446744073709551615B").map([](std::uint64_t bytes) {
    return Bytes{bytes};
  });
}

Result<Nanoseconds> parse_duration(std::string_view text) {
  constexpr std::uint64_t kDaysMax = 36500;
  return parse_whole(text, kDuration, kDaysMax * find_unit("d", kTimeUnits)->factor, "36500d")
      .map([](std::uint64_t ns) { return Nanoseconds{static_cast<std::int64_t>(ns)}; });
}

Result<Rate> parse_rate(std::string_view text) { return parse_per_time(text, kRate); }
Result<Rate> parse_bandwidth(std::string_view text) { return parse_per_time(text, kBandwidth); }

std::string print_count(std::uint64_t count) { return print_in(count, kCountUnits); }
std::string print_size(Bytes size) { return print_in(size.count(), kSizeUnits); }

std::string print_duration(Nanoseconds duration) {
  WEIR_ASSERT(duration.count() >= 0, duration.count());
  return print_in(static_cast<std::uint64_t>(duration.count()), kTimeUnits);
}

std::string print_rate(Rate rate) { return print_per_time(rate, kCountUnits); }
std::string print_bandwidth(Rate rate) { return print_per_time(rate, kSizeUnits); }

std::string about_size(Bytes size) {
  std::uint64_t factor = 1;
  std::string_view name = "B";
  for (const Unit& unit : kSizeUnits) {
    if (unit.name.ends_with("iB") && size.count() >= unit.factor) {
      factor = unit.factor;
      name = unit.name;
    }
  }
  if (factor == 1) return fmt::format("{}B", size.count());
  const std::uint64_t whole = size.count() / factor;
  const std::uint64_t tenths = size.count() % factor * 10 / factor;
  return whole >= 1000 ? fmt::format("{}{}", whole, name)
                       : fmt::format("{}.{}{}", whole, tenths, name);
}

}  // namespace weir
