// SPDX-License-Identifier: Apache-2.0
//
// Callbacks: calls of the server to the client. From minor version 1 on they arrive on the client's
// own connection, in the opposite direction of all other calls:
//
//   client -> server     calls of NFS               replies to callbacks
//   server -> client     replies of NFS             callbacks: CB_COMPOUND
//
// The two directions have separate xids, so the same xid may be in use in both. message_type()
// distinguishes the reply to a callback from a call; such a reply never belongs to a call of NFS.
//
// Callbacks and their replies are forwarded at once. They are walked only for CB_RECALL: it names a
// file whose delegation the client must return within a lease, and the client has to write its
// dirty pages before that, so calls on that file must not wait. Callbacks of minor version 0 use a
// separate connection, which does not pass through the gateway.
//
// Pure; spans point into the message; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "weir/nfs/codec/compound.h"
#include "weir/nfs/codec/rpc.h"
#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

inline constexpr std::uint32_t kCallbackVersion = 1;  // NFS_CB
inline constexpr std::uint32_t kCallbackCompound = 1;
inline constexpr std::size_t kRecallsMax = 8;  // of one compound; Linux sends one

// Whether it is the header of a CB_COMPOUND, whatever transient program number the client has
// chosen.
bool is_callback(const CallHeader& header);

struct CallbackCall {
  std::uint32_t minor_version = 0;
  std::uint32_t operation_count = 0;  // as claimed
  std::uint32_t walked = 0;           // of them
  WalkEnd end = WalkEnd::kShort;
  std::optional<SlotUse> slot;              // if CB_SEQUENCE is the first operation
  std::uint32_t recalls = 0;                // of delegations; the first kRecallsMax are in recalled
  std::array<Bytes, kRecallsMax> recalled;  // their file handles
  bool recalls_layouts = false;
};

CallbackCall read_callback(XdrReader arguments);

struct CallbackReply {
  std::uint32_t status = 0;
  std::uint32_t result_count = 0;
  std::uint32_t walked = 0;
  WalkEnd end = WalkEnd::kShort;
};

CallbackReply read_callback_reply(XdrReader results);

}  // namespace weir::nfs
