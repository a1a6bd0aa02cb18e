// SPDX-License-Identifier: Apache-2.0
//
// Messages of the lock service as protobuf carries them (lock.proto), to and from the plain ones
// of weir/lock/message.h. What comes from the other side is checked here, field by field: whatever
// passes has values that exist, numbers in range and no more operations than kOpsMax. What does not
// pass ends that connection and nothing else.
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

// Operations of one batch, either way. A batch of the longest names stays below 2 MiB.
inline constexpr std::size_t kOpsMax = 4096;
// Bytes of a message that are taken in at all; it leaves room for a name of 10 KB and more, which
// deserves an answer.
inline constexpr int kBatchBytesMax = 4 << 20;

// The batch's own memory is used again.
void to_wire(const lock::ClientMessage& message, const std::string& job,
             lock::v1::ClientBatch& batch);
void to_wire(const lock::ServerMessage& message, lock::v1::ServerBatch& batch);

// None: garbage.
std::optional<lock::ClientMessage> from_wire(lock::v1::ClientBatch& batch);
std::optional<lock::ServerMessage> from_wire(const lock::v1::ServerBatch& batch);
// What the hello of a batch says of the job; empty if it says nothing.
std::string job_in(const lock::v1::ClientBatch& batch);

void to_wire(const lock::LockList& list, lock::v1::ListReply& reply);
lock::LockList from_wire(const lock::v1::ListReply& reply);

void to_wire(const lock::LockStats& stats, lock::v1::StatsReply& reply);
// The view without clients, but for their number (others.clients).
lock::LockStats from_wire(const lock::v1::StatsReply& reply);

}  // namespace weir::cluster
