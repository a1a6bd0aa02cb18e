// SPDX-License-Identifier: Apache-2.0
//
// The files of the console, which contain nothing secret: they are served without a token. The page
// asks the server that it came from what it is, so every kind of daemon serves the same files.
#pragma once

#include <optional>
#include <string_view>

#include "weir/control/http.h"

namespace weir::control {

// The response to a request for one of the files; none for other paths.
std::optional<HttpResponse> page_file(const HttpRequest& request);

}  // namespace weir::control
