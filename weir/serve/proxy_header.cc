// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/proxy_header.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <netinet/in.h>

#include "weir/base/big_endian.h"

namespace weir::serve {
namespace {

constexpr std::array<std::uint8_t, 12> kSignature = {0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D,
                                                     0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A};
constexpr std::size_t kFixed = 16;
constexpr std::uint8_t kVersion = 0x20;
constexpr std::uint8_t kLocal = 0;
constexpr std::uint8_t kProxy = 1;
constexpr std::uint8_t kUnknown = 0;
constexpr std::uint8_t kTcp4 = 0x11;
constexpr std::uint8_t kTcp6 = 0x21;
constexpr std::size_t kAddresses4 = 12;
constexpr std::size_t kAddresses6 = 36;

sockaddr_in& as_four(sockaddr_storage& address) { return reinterpret_cast<sockaddr_in&>(address); }
sockaddr_in6& as_six(sockaddr_storage& address) { return reinterpret_cast<sockaddr_in6&>(address); }

bool is_ip(const sockaddr_storage& address) {
  return address.ss_family == AF_INET || address.ss_family == AF_INET6;
}

// As IPv6 even if it is IPv4.
std::array<std::uint8_t, 16> six_bytes(sockaddr_storage address) {
  std::array<std::uint8_t, 16> bytes{};
  if (address.ss_family == AF_INET6) {
    std::memcpy(bytes.data(), &as_six(address).sin6_addr, bytes.size());
  } else {
    bytes[10] = bytes[11] = 0xFF;
    std::memcpy(bytes.data() + 12, &as_four(address).sin_addr, 4);
  }
  return bytes;
}

sockaddr_storage four_at(const std::byte* address, const std::byte* port) {
  sockaddr_storage storage{};
  as_four(storage).sin_family = AF_INET;
  std::memcpy(&as_four(storage).sin_addr, address, 4);
  std::memcpy(&as_four(storage).sin_port, port, 2);
  return storage;
}

sockaddr_storage six_at(const std::byte* address, const std::byte* port) {
  sockaddr_storage storage{};
  as_six(storage).sin6_family = AF_INET6;
  std::memcpy(&as_six(storage).sin6_addr, address, 16);
  std::memcpy(&as_six(storage).sin6_port, port, 2);
  return unmapped(storage);
}

ProxyHeader bad(std::string_view problem) {
  return {.state = ProxyHeader::State::kBad, .problem = problem};
}

ProxyHeader read_ends(std::span<const std::byte> bytes, std::uint8_t family, ProxyHeader header) {
  const std::byte* const at = bytes.data() + kFixed;
  const std::size_t rest = header.size - kFixed;
  if (family == kTcp4 && rest >= kAddresses4) {
    header.ends = Ends{four_at(at, at + 8), four_at(at + 4, at + 10)};
  } else if (family == kTcp6 && rest >= kAddresses6) {
    header.ends = Ends{six_at(at, at + 32), six_at(at + 16, at + 34)};
  } else if (family != kUnknown) {
    return bad("a PROXY header without the addresses of a TCP connection");
  }
  return header;
}

}  // namespace

std::uint16_t port_of(const sockaddr_storage& address) {
  if (!is_ip(address)) return 0;
  // sin_port and sin6_port are at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void set_port(sockaddr_storage& address, std::uint16_t port) {
  if (is_ip(address)) as_four(address).sin_port = htons(port);
}

sockaddr_storage unmapped(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6) return address;
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return address;
  sockaddr_storage four{};
  as_four(four).sin_family = AF_INET;
  as_four(four).sin_port = six.sin6_port;
  std::memcpy(&as_four(four).sin_addr, six.sin6_addr.s6_addr + 12, 4);
  return four;
}

socklen_t size_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::vector<std::byte> write_proxy_header(const Ends& ends) {
  sockaddr_storage client = unmapped(ends.client);
  sockaddr_storage server = unmapped(ends.server);
  const bool is_known = is_ip(client) && is_ip(server);
  const bool is_four = client.ss_family == AF_INET && server.ss_family == AF_INET;
  const std::size_t addresses = !is_known ? 0 : is_four ? kAddresses4 : kAddresses6;
  std::vector<std::byte> header(kFixed + addresses);
  std::memcpy(header.data(), kSignature.data(), kSignature.size());
  header[12] = std::byte(kVersion | (is_known ? kProxy : kLocal));
  header[13] = std::byte(!is_known ? kUnknown : is_four ? kTcp4 : kTcp6);
  store_be(header.data() + 14, static_cast<std::uint16_t>(addresses));
  if (!is_known) return header;
  std::byte* at = header.data() + kFixed;
  if (is_four) {
    std::memcpy(at, &as_four(client).sin_addr, 4);
    std::memcpy(at + 4, &as_four(server).sin_addr, 4);
    at += 8;
  } else {
    std::memcpy(at, six_bytes(client).data(), 16);
    std::memcpy(at + 16, six_bytes(server).data(), 16);
    at += 32;
  }
  store_be(at, port_of(client));
  store_be(at + 2, port_of(server));
  return header;
}

ProxyHeader read_proxy_header(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const std::size_t compared = std::min(bytes.size(), kSignature.size());
  if (std::memcmp(bytes.data(), kSignature.data(), compared) != 0) {
    return bad("no PROXY header of version 2, which its address has to send first");
  }
  if (bytes.size() < kFixed) return {};
  const auto command = static_cast<std::uint8_t>(bytes[12]);
  if (command != (kVersion | kLocal) && command != (kVersion | kProxy)) {
    return bad("a PROXY header of an unknown version or command");
  }
  ProxyHeader header;
  header.size = kFixed + load_be<std::uint16_t>(bytes.data() + 14);
  if (header.size > kProxyHeaderMax) return bad("a PROXY header of more than 4096 bytes");
  if (bytes.size() < header.size) return {};
  header.state = ProxyHeader::State::kWhole;
  if (command == (kVersion | kLocal)) return header;
  return read_ends(bytes, static_cast<std::uint8_t>(bytes[13]), header);
}

}  // namespace weir::serve
