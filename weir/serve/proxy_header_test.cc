// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/proxy_header.h"

#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir::serve {
namespace {

using State = ProxyHeader::State;
using namespace std::string_literals;

const std::string kSignature = "\r\n\r\n\0\r\nQUIT\n"s;

sockaddr_storage address(const char* text, std::uint16_t port) {
  sockaddr_storage storage{};
  storage.ss_family =
      std::string_view(text).find(':') == std::string_view::npos ? AF_INET : AF_INET6;
  void* const at = storage.ss_family == AF_INET
                       ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(storage).sin_addr)
                       : &reinterpret_cast<sockaddr_in6&>(storage).sin6_addr;
  EXPECT_EQ(inet_pton(storage.ss_family, text, at), 1) << text;
  set_port(storage, port);
  return storage;
}

std::string print(const sockaddr_storage& one) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* const at =
      one.ss_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(one).sin_addr)
          : &reinterpret_cast<const sockaddr_in6&>(one).sin6_addr;
  inet_ntop(one.ss_family, at, text, sizeof text);
  return std::string(text) + " " + std::to_string(port_of(one));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ProxyHeader read(std::string_view text) {
  return read_proxy_header(std::as_bytes(std::span(text.data(), text.size())));
}

// Byte for byte as section 2.2 of the specification has it.
TEST(ProxyHeaderTest, IsWrittenAsTheSpecificationSays) {
  EXPECT_EQ(text_of(write_proxy_header({address("10.0.0.1", 0x0102), address("10.0.0.2", 2049)})),
            kSignature + "\x21\x11\x00\x0c\x0a\x00\x00\x01\x0a\x00\x00\x02\x01\x02\x08\x01"s);
  EXPECT_EQ(text_of(write_proxy_header({address("2001:db8::1", 1), address("2001:db8::2", 2049)})),
            kSignature + "\x21\x21\x00\x24"s + "\x20\x01\x0d\xb8"s + std::string(11, '\0') +
                "\x01"s + "\x20\x01\x0d\xb8"s + std::string(11, '\0') + "\x02\x00\x01\x08\x01"s);
  // A client on a socket that also accepts IPv6.
  EXPECT_EQ(text_of(write_proxy_header({address("::ffff:10.0.0.1", 1), address("10.0.0.2", 2)})),
            text_of(write_proxy_header({address("10.0.0.1", 1), address("10.0.0.2", 2)})));
  EXPECT_EQ(text_of(write_proxy_header({})), kSignature + "\x20\x00\x00\x00"s);
}

TEST(ProxyHeaderTest, IsReadAsItWasWritten) {
  for (const auto& [client, server] : {std::pair{"10.0.0.1", "10.0.0.2"},
                                       {"2001:db8::1", "2001:db8::2"},
                                       {"10.0.0.1", "2001:db8::2"}}) {
    const Ends ends{address(client, 700), address(server, 2049)};
    const std::string text = text_of(write_proxy_header(ends));
    const ProxyHeader header = read(text + "rest");
    ASSERT_EQ(header.state, State::kWhole);
    EXPECT_EQ(header.size, text.size());
    ASSERT_TRUE(header.ends);
    EXPECT_EQ(print(header.ends->client), print(ends.client));
    EXPECT_EQ(print(header.ends->server), print(ends.server));
    for (std::size_t size = 0; size < text.size(); ++size) {
      EXPECT_EQ(read(text.substr(0, size)).state, State::kNeedBytes) << size;
    }
  }
}

TEST(ProxyHeaderTest, ExtensionsAreSkippedAndLocalHasNoAddresses) {
  const std::string addresses = "\x0a\x00\x00\x01\x0a\x00\x00\x02\x01\x02\x08\x01"s;
  const ProxyHeader extended =
      read(kSignature + "\x21\x11\x00\x10"s + addresses + "\x04\x00\x01x"s);
  EXPECT_EQ(extended.size, 32U);
  EXPECT_EQ(print(extended.ends.value().client), "10.0.0.1 258");
  for (const std::string& start : {"\x20\x11\x00\x0c"s, "\x20\x00\x00\x0c"s, "\x21\x00\x00\x0c"s}) {
    const ProxyHeader header = read(kSignature + start + addresses);
    EXPECT_EQ(header.state, State::kWhole);
    EXPECT_EQ(header.size, 28U);
    EXPECT_FALSE(header.ends);
  }
}

TEST(ProxyHeaderTest, OthersAreRefusedAsSoonAsPossible) {
  EXPECT_EQ(read("P").state, State::kBad);  // version 1
  EXPECT_EQ(read("\x80\x00\x00\x28"s).state, State::kBad);
  EXPECT_EQ(read("\r\n\r\n\0\r\nQUIT\r"s).state, State::kBad);
  for (const std::string& rest :
       {"\x11\x11\x00\x0c"s, "\x22\x11\x00\x0c"s, "\x31\x11\x00\x0c"s, "\x21\x11\xff\xff"s}) {
    EXPECT_EQ(read(kSignature + rest).state, State::kBad) << rest[0];
  }
  // Too short for its family; UDP; Unix sockets.
  for (const std::string& start :
       {"\x21\x11\x00\x0b"s, "\x21\x21\x00\x23"s, "\x21\x12\x00\x0c"s, "\x21\x31\x00\xd8"s}) {
    EXPECT_EQ(read(kSignature + start + std::string(300, '\0')).state, State::kBad) << start[1];
  }
}

TEST(ProxyHeaderTest, NoBytesAreReadBeyondTheEnd) {
  Rng rng(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text = kSignature.substr(0, rng.below(13));
    if (text.size() == 12) text += "\x21\x11\x00"s;
    for (std::uint64_t more = rng.below(60); more > 0; --more) {
      text += static_cast<char>(rng.below(256));
    }
    const std::vector<char> exact(text.begin(), text.end());  // for the sanitizer
    const ProxyHeader header = read({exact.data(), exact.size()});
    EXPECT_EQ(header.state == State::kBad, !header.problem.empty());
    if (header.state == State::kWhole) EXPECT_LE(header.size, text.size());
  }
}

}  // namespace
}  // namespace weir::serve
