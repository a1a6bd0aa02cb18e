// SPDX-License-Identifier: Apache-2.0
#include "weir/control/metric_family.h"

#include <iterator>

#include <fmt/format.h>

namespace weir::control {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr unsigned kLeastExponent = 14;
constexpr unsigned kMostExponent = 36;

std::string seconds_text(std::uint64_t ns) {
  return fmt::format("{}.{:09}", ns / kSecond, ns % kSecond);
}

}  // namespace

std::string metric_label(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string labels_of(std::string_view service) {
  return "{service=" + metric_label(service) + "}";
}

std::string labels_of(std::string_view service, std::string_view key, std::string_view value) {
  return fmt::format("{{service={},{}={}}}", metric_label(service), key, metric_label(value));
}

Family::Family(std::string& page, std::string_view name, std::string_view type,
               std::string_view help)
    : page_(page), name_(name) {
  fmt::format_to(std::back_inserter(page_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void Family::add(std::string_view labels, std::uint64_t value) {
  fmt::format_to(std::back_inserter(page_), "{}{} {}\n", name_, labels, value);
}

void Family::add_signed(std::string_view labels, std::int64_t value) {
  fmt::format_to(std::back_inserter(page_), "{}{} {}\n", name_, labels, value);
}

void Family::add_seconds(std::string_view labels, std::uint64_t ns) {
  fmt::format_to(std::back_inserter(page_), "{}{} {}\n", name_, labels, seconds_text(ns));
}

void Family::add_times(std::string_view labels, const TimeHistogram& times) {
  const std::string_view open = labels.substr(0, labels.size() - 1);  // without the brace
  const auto bucket = [&](std::string_view le, std::uint64_t count) {
    fmt::format_to(std::back_inserter(page_), "{}_bucket{},le=\"{}\"}} {}\n", name_, open, le,
                   count);
  };
  for (unsigned exponent = kLeastExponent; exponent <= kMostExponent; ++exponent) {
    bucket(seconds_text(std::uint64_t{1} << exponent), times.count_up_to(exponent));
  }
  bucket("+Inf", times.count());
  fmt::format_to(std::back_inserter(page_), "{0}_sum{1} {2}\n{0}_count{1} {3}\n", name_, labels,
                 seconds_text(times.sum_ns()), times.count());
}

}  // namespace weir::control
