// SPDX-License-Identifier: Apache-2.0
#include "weir/control/words.h"

#include <array>

#include <fmt/format.h>

namespace weir::control {
namespace {

// In the largest of these units, 1000 apart, of which there is at least one.
std::string scaled(std::uint64_t number, std::uint64_t from,
                   const std::array<std::string_view, 4>& units) {
  std::size_t unit = 0;
  std::uint64_t size = 1;
  while (unit + 1 < units.size() && number / size >= from) {
    size *= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} {}", number, units[0]);
  const std::uint64_t tenths = number / (size / 10);
  return fmt::format("{}.{} {}", tenths / 10, tenths % 10, units[unit]);
}

}  // namespace

std::string count_words(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string time_words(std::uint64_t ns) { return scaled(ns, 1000, {"ns", "us", "ms", "s"}); }

std::string rate_words(std::uint64_t rate, std::string_view unit) {
  if (rate < 1'000'000) return fmt::format("{} {}/s", count_words(rate), unit);
  return fmt::format("{}{}/s", scaled(rate, 1000, {"", "k ", "M ", "G "}), unit);
}

std::string bandwidth_words(std::uint64_t bytes) {
  return scaled(bytes, 1000, {"B/s", "kB/s", "MB/s", "GB/s"});
}

}  // namespace weir::control
