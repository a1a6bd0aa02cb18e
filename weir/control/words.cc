// SPDX-License-Identifier: Apache-2.0
#include "weir/control/words.h"

#include <array>

#include <fmt/format.h>

namespace weir::control {
namespace {

enum class Zeros : std::uint8_t { kKept, kCut };  // at the end, behind the point

// In the largest of these units, 1000 apart, of which there is at least one.
std::string scaled(std::uint64_t number, const std::array<std::string_view, 5>& units,
                   Zeros zeros) {
  std::size_t unit = 0;
  std::uint64_t size = 1;
  while (unit + 1 < units.size() && !units[unit + 1].empty() && number / size >= 1000) {
    size *= 1000;
    ++unit;
  }
  const std::uint64_t whole = number / size;
  if (unit == 0 || whole >= 1000) {
    return fmt::format("{} {}", count_words(three_digits(whole)), units[unit]);
  }
  std::string digits = std::to_string(number / (size / 100));  // with two behind the point
  digits.insert(digits.size() - 2, 1, '.');
  digits.resize(4);
  if (zeros == Zeros::kCut) digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return fmt::format("{} {}", digits, units[unit]);
}

}  // namespace

std::string count_words(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string counted(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count_words(count), thing, count == 1 ? "" : "s");
}

std::uint64_t three_digits(std::uint64_t number) {
  std::uint64_t unit = 1;
  while (number / unit >= 1000) unit *= 10;
  return number / unit * unit;
}

std::string time_words(std::uint64_t ns) {
  return scaled(ns, {"ns", "us", "ms", "s", ""}, Zeros::kKept);
}

std::string rate_words(std::uint64_t rate, std::string_view unit) {
  if (rate < 1'000'000) return fmt::format("{} {}/s", count_words(rate), unit);
  return fmt::format("{}{}/s", scaled(rate, {"", "k ", "M ", "G ", ""}, Zeros::kCut), unit);
}

std::string bandwidth_words(std::uint64_t bytes) {
  return scaled(bytes, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}, Zeros::kCut);
}

std::string size_words(std::uint64_t bytes) {
  return scaled(bytes, {"B", "kB", "MB", "GB", "TB"}, Zeros::kCut);
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+:,./_-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace weir::control
