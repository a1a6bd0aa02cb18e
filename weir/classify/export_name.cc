// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/export_name.h"

#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "weir/base/hash.h"

namespace weir {

ExportName export_name(std::string_view name) {
  if (name.size() <= ExportName::kSizeMax) return ExportName(name);
  std::uint64_t sum = name.size();
  for (const char byte : name) sum = hash_words(sum, static_cast<unsigned char>(byte));
  std::string text = fmt::format("{:08x}~", static_cast<std::uint32_t>(sum));
  text += name.substr(name.size() - (ExportName::kSizeMax - text.size()));
  return ExportName(text);
}

}  // namespace weir
