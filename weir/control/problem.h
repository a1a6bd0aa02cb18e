// SPDX-License-Identifier: Apache-2.0
//
// Error responses, as RFC 9457 describes them (application/problem+json):
//
//   {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no such path",
//    "hint": "see weir-api(7)"}
//
// An Error adds `where`, `hint` and `errno`. Functions of values.
#pragma once

#include <string_view>

#include "weir/base/result.h"
#include "weir/control/http.h"

namespace weir::control {

// With the HTTP status for the errno.
HttpResponse error_response(const Error& error);
HttpResponse error_response(unsigned status, std::string_view what, std::string_view hint = {});
// 405 with the methods that the path allows, as in the header Allow.
HttpResponse method_response(std::string_view method, std::string_view allowed);

}  // namespace weir::control
