// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/send_directly.h"

#include <algorithm>
#include <array>

#include <sys/socket.h>
#include <sys/uio.h>

namespace weir::serve {

std::size_t send_directly(int socket, ByteQueue& queue, std::span<const std::byte> piece) {
  if (piece.size() < kSendDirectlyMin) return 0;
  constexpr std::size_t kPartsMax = 8;
  std::array<iovec, kPartsMax + 1> parts{};
  const std::size_t waiting = queue.parts(std::span(parts).first(kPartsMax));
  std::size_t before = 0;
  for (std::size_t i = 0; i < waiting; ++i) before += parts[i].iov_len;
  if (before != queue.size()) return 0;
  parts[waiting] = {const_cast<std::byte*>(piece.data()), piece.size()};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = waiting + 1;
  const ssize_t done = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (done <= 0) return 0;
  const auto sent = static_cast<std::size_t>(done);
  queue.drop(std::min(sent, before));
  return sent - std::min(sent, before);
}

std::span<const std::byte> receive_more(int socket, std::vector<std::byte>& room,
                                        std::size_t bytes) {
  if (bytes < kSendDirectlyMin) return {};
  if (room.empty()) room.resize(kLargePiece);
  const ssize_t got = recv(socket, room.data(), std::min(bytes, room.size()), MSG_DONTWAIT);
  return std::span(room).first(got < 0 ? 0 : static_cast<std::size_t>(got));
}

}  // namespace weir::serve
