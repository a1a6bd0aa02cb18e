// SPDX-License-Identifier: Apache-2.0
#include "weir/control/metric_family.h"

#include <iterator>

#include <fmt/format.h>

namespace weir::control {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

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
  fmt::format_to(std::back_inserter(page_), "{}{} {}.{:09}\n", name_, labels, ns / kSecond,
                 ns % kSecond);
}

}  // namespace weir::control
