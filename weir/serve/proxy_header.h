// SPDX-License-Identifier: Apache-2.0
//
// The header of the PROXY protocol, version 2: the first bytes of a connection that a proxy has
// made for a client, with the addresses of the connection of that client.
//
//   0   12 bytes    signature
//   12  1 byte      version 2, and command: LOCAL (the proxy itself, such as a health check), PROXY
//   13  1 byte      family and transport: TCP over IPv4 (0x11), over IPv6 (0x21), unknown (0)
//   14  2 bytes     length of the rest
//   16              source address, destination address, source port, destination port; extensions
//
// A header of a sender that may not send one would let any client choose its address: the caller
// checks the sender. Extensions are not read. Pure: no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace weir::serve {

// The two addresses of a connection as its client sees it.
struct Ends {
  sockaddr_storage client{};
  sockaddr_storage server{};
};

inline constexpr std::size_t kProxyHeaderMax = 4096;  // with extensions; usually 28 or 52 bytes

// IPv4 in IPv6 is written as IPv4. Other addresses than IP: a LOCAL header.
std::vector<std::byte> write_proxy_header(const Ends& ends);

struct ProxyHeader {
  enum class State : std::uint8_t { kNeedBytes, kWhole, kBad };

  State state = State::kNeedBytes;
  std::size_t size = 0;           // of a whole one
  std::optional<Ends> ends = {};  // of a whole one; none: those of the socket
  std::string_view problem = {};  // of a bad one
};

// `bytes` are the first ones of the connection. Bad as soon as they cannot become a header.
ProxyHeader read_proxy_header(std::span<const std::byte> bytes);

// 0 for other addresses than IP.
std::uint16_t port_of(const sockaddr_storage& address);
void set_port(sockaddr_storage& address, std::uint16_t port);
// IPv4 in IPv6 (::ffff:10.1.2.3) becomes IPv4.
sockaddr_storage unmapped(const sockaddr_storage& address);
socklen_t size_of(const sockaddr_storage& address);

}  // namespace weir::serve
