// SPDX-License-Identifier: Apache-2.0
//
// Converts messages of the lock service between protobuf (lock.proto) and the plain structs of
// weir/lock/message.h. Received messages are checked here, field by field: accepted ones have valid
// enumerators, numbers in range and at most kOpsMax operations. An invalid message ends only its
// own connection.
//
// Names are not checked here: the server rejects one that is too long with an answer to its client,
// and the stream continues.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "weir/lock/message.h"
#include "weir/lock/view.h"

namespace weir::lock::v1 {
class ClientBatch;
class ServerBatch;
class ListReply;
class StatsReply;
}  // namespace weir::lock::v1

namespace weir::cluster {

// Maximum operations of one batch, in either direction. A batch of the longest names is below
// 2 MiB.
inline constexpr std::size_t kOpsMax = 4096;
// Maximum size of a received message; it leaves room for names of 10 KB and more, which are
// answered with an error.
inline constexpr int kBatchBytesMax = 4 << 20;

// Reuses the memory of the batch.
void to_wire(const lock::ClientMessage& message, const std::string& job,
             lock::v1::ClientBatch& batch);
void to_wire(const lock::ServerMessage& message, lock::v1::ServerBatch& batch);

// None: not a valid message.
std::optional<lock::ClientMessage> from_wire(lock::v1::ClientBatch& batch);
std::optional<lock::ServerMessage> from_wire(const lock::v1::ServerBatch& batch);
// The job in the hello of a batch; empty if there is none.
std::string job_in(const lock::v1::ClientBatch& batch);

void to_wire(const lock::LockList& list, lock::v1::ListReply& reply);
lock::LockList from_wire(const lock::v1::ListReply& reply);

void to_wire(const lock::LockStats& stats, lock::v1::StatsReply& reply);
// The view contains only the number of clients (others.clients).
lock::LockStats from_wire(const lock::v1::StatsReply& reply);

}  // namespace weir::cluster
