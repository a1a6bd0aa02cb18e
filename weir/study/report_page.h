// SPDX-License-Identifier: Apache-2.0
//
// A report is one page that needs nothing else: web/*.html with the numbers put where its script
// says /*DATA*/. The data, which includes names chosen by users, cannot end the script that
// contains it.
//
//   report_page("sim-report.html", json)
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weir/base/result.h"

namespace weir::study {

// REQUIRES: the page is embedded and has the place; `json` is JSON.
std::string report_page(std::string_view page, std::string json);

using NamedText = std::pair<std::string_view, std::string>;
// Makes the folder if it is not there. The first that cannot be written ends it.
Result<void> write_texts(const std::string& folder, std::span<const NamedText> texts);

}  // namespace weir::study
