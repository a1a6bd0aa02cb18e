// SPDX-License-Identifier: Apache-2.0
//
// Names and numbers of Lustre's RPC opcodes, as rules and statistics write them: ost_read is 3,
// ost_write 4, mds_getattr_lock 34 (not mds_getattr_name), obd_ping 400.
//
// The numbers are those on the wire, as in Wireshark's packet-lustre.c; the names are those of the
// server's RPC statistics (lproc_ptlrpc.c of the kernel's former staging driver). Newer opcodes
// (ost_ladvise and later, mds_batch, out_update, LFSCK) follow the same pattern. A request may have
// any number, including one without a name.
//
// What a request does to a device is its OperationKind, which is Weir's own; opcodes are Lustre's
// names for operations, which rules match. The table has the kind of each opcode; a protocol uses
// the nearest opcode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weir/base/operation_kind.h"

namespace weir {

// The kind of an opcode; kOther for one without a name.
OperationKind operation_kind(std::uint32_t opcode);

std::optional<std::uint32_t> opcode_number(std::string_view name);

// The name, or the number in digits.
std::string opcode_name(std::uint32_t number);

}  // namespace weir
