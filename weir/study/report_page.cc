// SPDX-License-Identifier: Apache-2.0
#include "weir/study/report_page.h"

#include "weir/base/assert.h"
#include "weir/host/files.h"
#include "weir/study/embedded.h"

namespace weir::study {
namespace {

constexpr std::string_view kPlace = "/*DATA*/";

}  // namespace

std::string report_page(std::string_view page, std::string json) {
  // "</" would end the script of the page, even inside a string.
  for (std::size_t i = json.find("</"); i != std::string::npos; i = json.find("</", i + 3)) {
    json.insert(i + 1, "\\");
  }
  std::string text(find_embedded(embedded_files(), page).value_or(""));
  const std::size_t place = text.find(kPlace);
  WEIR_ASSERT(place != std::string::npos);
  return text.replace(place, kPlace.size(), json);
}

Result<void> write_texts(const std::string& folder, std::span<const NamedText> texts) {
  if (auto made = host::make_folder(folder); !made) return made;
  for (const auto& [name, text] : texts) {
    if (auto written = host::write_file(folder + "/" + std::string(name), text); !written)
      return written;
  }
  return {};
}

}  // namespace weir::study
