// SPDX-License-Identifier: Apache-2.0
//
// Validates the requests of a Session before they are used. A protocol rejects invalid requests of
// its client; a request that it fails to reject is caught here and not in a store: the connection
// is closed and the log names the protocol and the fault.
//
//   if (const std::string wrong = request_fault(request); !wrong.empty()) ...close it...
//
// Pure.
#pragma once

#include <cstddef>
#include <string>

#include "weir/serve/io_request.h"

namespace weir::serve {

// Why a request is not valid; empty if it is.
std::string request_fault(const IoRequest& request);
// The same for a reply, header and payload.
std::string reply_fault(const IoRequest& request);

}  // namespace weir::serve
