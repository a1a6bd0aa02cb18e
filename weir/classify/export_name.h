// SPDX-License-Identifier: Apache-2.0
//
// The name of an export as an attribute of requests: up to 31 bytes. A longer name, such as the
// path of an NFS export, becomes a checksum of the whole and its end, so that different names stay
// different and can be recognized:
//
//   export_name("/home").text() == "/home"
//   export_name("/srv/a/department/projects/alpha").text() == "0f3c1a92~rtment/projects/alpha"
//
// Rules apply the same to the names in their conditions. Pure.
#pragma once

#include <string_view>

#include "weir/base/short_text.h"

namespace weir {

using ExportName = ShortText<struct OfExport>;

ExportName export_name(std::string_view name);

}  // namespace weir
