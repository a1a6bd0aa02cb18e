// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/send_directly.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <sys/socket.h>
#include <sys/uio.h>

#include "weir/serve/loop_context.h"

namespace weir::serve {
namespace {

std::size_t send_parts(int socket, std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t done = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  return static_cast<std::size_t>(std::max<ssize_t>(done, 0));
}

}  // namespace

std::size_t send_directly(int socket, ByteQueue& queue, std::span<const std::byte> piece) {
  if (piece.size() < kSendDirectlyMin) return 0;
  constexpr std::size_t kPartsMax = 8;
  std::array<iovec, kPartsMax + 1> parts{};
  const std::size_t waiting = queue.parts(std::span(parts).first(kPartsMax));
  std::size_t before = 0;
  for (std::size_t i = 0; i < waiting; ++i) before += parts[i].iov_len;
  if (before != queue.size()) return 0;
  parts[waiting] = {const_cast<std::byte*>(piece.data()), piece.size()};
  const std::size_t sent = send_parts(socket, std::span(parts).first(waiting + 1));
  queue.drop(std::min(sent, before));
  return sent - std::min(sent, before);
}

std::size_t send_queue(int socket, ByteQueue& queue) {
  constexpr std::size_t kPartsMax = 64;
  std::array<iovec, kPartsMax> parts;
  const std::size_t sent = send_parts(socket, std::span(parts).first(queue.parts(parts)));
  queue.drop(sent);
  return sent;
}

bool send_rest(LoopContext& context, int socket, const ByteQueue& queue,
               host::Operation& operation) {
  if (queue.empty()) return false;
  Outgoing& outgoing = context.next_outgoing();
  outgoing.message = {};
  outgoing.message.msg_iov = outgoing.parts.data();
  outgoing.message.msg_iovlen = queue.parts(outgoing.parts);
  context.io->send(socket, outgoing.message, operation);
  return true;
}

LargeReceive receive_large(int socket, std::vector<std::byte>& room, std::size_t bytes) {
  if (room.empty()) room.resize(kLargePiece);
  const ssize_t got = recv(socket, room.data(), std::min(bytes, room.size()), MSG_DONTWAIT);
  if (got < 0) return {-errno, {}};
  return {static_cast<int>(got), std::span(room).first(static_cast<std::size_t>(got))};
}

}  // namespace weir::serve
