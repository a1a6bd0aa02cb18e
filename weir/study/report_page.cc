// SPDX-License-Identifier: Apache-2.0
#include "weir/study/report_page.h"

#include "weir/base/assert.h"
#include "weir/host/files.h"
#include "weir/study/embedded.h"

namespace weir::study {
namespace {

constexpr std::string_view kPlace = "/*DATA*/";

void put(std::string& text, std::string_view place, std::string_view what) {
  const std::size_t at = text.find(place);
  WEIR_ASSERT(at != std::string::npos);
  text.replace(at, place.size(), what);
}

std::string_view file(std::string_view name) {
  return find_embedded(embedded_files(), name).value_or("");
}

}  // namespace

std::string report_page(std::string_view page, std::string json) {
  // "</" would end the script of the page, even inside a string.
  for (std::size_t i = json.find("</"); i != std::string::npos; i = json.find("</", i + 3)) {
    json.insert(i + 1, "\\");
  }
  std::string text(file("report.html"));
  put(text, "/*STYLE*/", file("report.css"));
  put(text, "/*CHARTS*/", file("report.js"));
  put(text, "/*PAGE*/", file(page));
  // Last, since it may contain anything.
  put(text, kPlace, json);
  return text;
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
