// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a peer may crash the lock service or its clients. The first byte selects the
// receiver: a server that already knows a client, or a client that holds a lock and waits for
// another. A message that was accepted must encode to the same message again.
#include <cstddef>
#include <cstdint>

#include "weir/base/assert.h"
#include "weir/cluster/lock.pb.h"
#include "weir/cluster/lock_wire.h"
#include "weir/lock/client.h"
#include "weir/lock/server.h"

namespace {

using namespace weir;
namespace wire = lock::v1;

constexpr Instant kNow = instant_at(1'000'000'000);
constexpr auto kWait = lock::LockTable::OrWait::kWait;

void tell_server(wire::ClientBatch& batch) {
  const auto message = cluster::from_wire(batch);
  if (!message) return;
  WEIR_ASSERT(message->ops.size() <= cluster::kOpsMax + 3);
  wire::ClientBatch again;
  cluster::to_wire(*message, "", again);
  const auto same = cluster::from_wire(again);
  WEIR_ASSERT(same && same->number == message->number && same->ops.size() == message->ops.size());

  lock::LockServer server({.pool = {.limit = 8}}, 2, lock::LockServer::Start::kRecovering, kNow);
  server.connect(1, kNow);
  lock::ClientMessage hello{.number = 1, .ops = std::vector<lock::ClientOp>(1)};
  server.receive(1, hello, kNow);
  server.receive(1, *message, kNow);
  server.connect(2, kNow);
  server.receive(2, *message, kNow);
  for (const auto connection : {1U, 2U}) (void)server.take(connection);
  server.tick(kNow + std::chrono::hours{1});
  WEIR_ASSERT(server.table().is_valid() && server.sessions() == 0);
}

void tell_client(const wire::ServerBatch& batch) {
  const auto message = cluster::from_wire(batch);
  if (!message) return;
  wire::ServerBatch again;
  cluster::to_wire(*message, again);
  const auto same = cluster::from_wire(again);
  WEIR_ASSERT(same && same->volume == message->volume && same->ops.size() == message->ops.size());

  lock::LockClient client{lock::ClientOptions{}};
  const auto one = client.acquire("one", lock::Mode::kExclusive, kWait, kNow);
  (void)client.acquire("two", lock::Mode::kShared, kWait, kNow);
  client.connected(kNow);
  (void)client.take(kNow);
  client.receive(*message, kNow);
  client.release(one.ticket, kNow);
  client.receive(*message, kNow);
  client.tick(kNow + std::chrono::hours{24 * 366});
  WEIR_ASSERT(client.held() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto length = static_cast<int>(size - 1);
  if (data[0] % 2 == 0) {
    wire::ClientBatch batch;
    if (batch.ParseFromArray(data + 1, length)) tell_server(batch);
  } else {
    wire::ServerBatch batch;
    if (batch.ParseFromArray(data + 1, length)) tell_client(batch);
  }
  return 0;
}
