// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/io_request.h"

#include <array>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir::serve {
namespace {

// In the order of StoreCommand.
constexpr std::array<std::string_view, 6> kNames = {"read", "write",        "flush",
                                                    "trim", "write zeroes", "cache"};

}  // namespace

std::string describe_store_error(std::string_view export_name, const IoRequest& request,
                                 int error) {
  const auto index = static_cast<std::size_t>(request.command);
  WEIR_ASSERT(index < kNames.size(), index);
  const std::string range =
      request.command == StoreCommand::kFlush
          ? std::string()
          : fmt::format(" of {} bytes at offset {}", request.length, request.offset);
  const char* const name = strerrorname_np(error);
  return fmt::format("export {}: {}{}: {} ({})", quote(export_name), kNames[index], range,
                     std::generic_category().message(error),
                     name != nullptr ? name : fmt::format("errno {}", error));
}

}  // namespace weir::serve
