// SPDX-License-Identifier: Apache-2.0
//
// The files of the console: the page, its scripts and styles. They contain nothing secret and are
// served without a token; the page asks its user for one and sends it with its requests to the API.
//
// The page asks the server that it came from what it is, so every kind of daemon serves the same
// files. Thread-safe: the files are constants of the program.
#pragma once

#include <optional>
#include <string_view>

#include "weir/control/http.h"

namespace weir::control {

// The response to a request for one of the files; none for other paths.
std::optional<HttpResponse> page_file(const HttpRequest& request);

}  // namespace weir::control
