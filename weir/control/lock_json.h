// SPDX-License-Identifier: Apache-2.0
//
// Lock services as JSON for the HTTP API and the page: views (weir/lock/view.h) in, text out.
//
//   {"namespace":"locks","preset":"weir","limit":1000,"granted":904,...,
//    "top":[{"client":4294967297,"locks":600,...}],"others":{"clients":1,"locks":4,"waiting":0}}
//
// Lock names are arbitrary bytes from clients: they are escaped like other names from clients
// (printable_id()). Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weir/lock/view.h"

namespace weir::control {

// An array of all namespaces, each with its clients.
std::string namespaces_json(const std::vector<lock::NamespaceView>& views);
std::string namespace_json(const lock::NamespaceView& view);
// `is_whole`: the list is complete.
std::string lock_list_json(const std::vector<lock::LockView>& locks, bool is_whole);

}  // namespace weir::control
