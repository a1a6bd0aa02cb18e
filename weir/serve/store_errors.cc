// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/store_errors.h"

#include <array>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir::serve {
namespace {

// In the order of nbd::Command.
constexpr std::array<std::string_view, 8> kNames = {
    "read", "write", "disconnect", "flush", "trim", "cache", "write zeroes", "block status"};

}  // namespace

void SyncErrors::failed(int error) {
  WEIR_ASSERT(error > 0, error);
  ++failures_;
  error_ = error;
}

int SyncErrors::tell(Mark& mark) {
  if (mark == failures_) return 0;
  mark = failures_;
  told_ = failures_;
  return error_;
}

bool makes_durable(const nbd::Request& request) {
  return request.command == nbd::Command::kFlush || request.has(nbd::kFua);
}

std::string describe_store_error(std::string_view export_name, const nbd::Request& request,
                                 int error) {
  const auto index = static_cast<std::size_t>(request.command);
  WEIR_ASSERT(index < kNames.size(), index);
  const std::string range =
      request.command == nbd::Command::kFlush
          ? std::string()
          : fmt::format(" of {} bytes at offset {}", request.length, request.offset);
  const char* const name = strerrorname_np(error);
  return fmt::format("export {}: {}{}: {} ({})", quote(export_name), kNames[index], range,
                     std::generic_category().message(error),
                     name != nullptr ? name : fmt::format("errno {}", error));
}

}  // namespace weir::serve
