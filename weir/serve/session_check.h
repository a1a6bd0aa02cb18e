// SPDX-License-Identifier: Apache-2.0
//
// Checks the requests of a Session before they are used. A protocol rejects invalid requests of its
// client; a request that it fails to reject stops here and not in a store: the connection is closed
// and the log names the protocol and the fault.
//
//   if (const std::string wrong = request_fault(request); !wrong.empty()) ...close it...
//
// Pure.
#pragma once

#include <cstddef>
#include <string>

#include "weir/serve/io_request.h"

namespace weir::serve {

// Why a request cannot be; empty if it can.
std::string request_fault(const IoRequest& request);
// The same of a reply that was made, head and payload.
std::string reply_fault(const IoRequest& request);

}  // namespace weir::serve
