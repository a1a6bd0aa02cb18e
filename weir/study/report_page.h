// SPDX-License-Identifier: Apache-2.0
//
// A report is a self-contained page: web/report.html with the style and the script that all of them
// share (report.css, report.js), the script of the report, and the numbers in place of /*DATA*/.
// The data, which includes names chosen by users, cannot end the script that contains it.
//
//   report_page("sim-report.js", json)
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weir/base/result.h"

namespace weir::study {

// `page` is the script of the report. REQUIRES: it is embedded; `json` is JSON.
std::string report_page(std::string_view page, std::string json);

using NamedText = std::pair<std::string_view, std::string>;
// Creates the folder if it does not exist. Stops at the first file that cannot be written.
Result<void> write_texts(const std::string& folder, std::span<const NamedText> texts);

}  // namespace weir::study
