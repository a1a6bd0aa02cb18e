// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/client.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/big_endian.h"
#include "weir/nbd/codec/handshake.h"

namespace weir::nbd {
namespace {

using Bytes = std::vector<std::byte>;
using State = ClientHandshake::State;

constexpr Export kOffer{.size = 1U << 30,
                        .flags = kSendFlush,
                        .blocks = {512, 4096, 1U << 20},
                        .name = "scratch",
                        .description = ""};

// The result of the client's handshake with the server side of this module, in pieces of a given
// size.
struct Meeting {
  explicit Meeting(const std::string& name, std::size_t piece = SIZE_MAX) : client(name) {
    server.greet(to_client);
    while (state == State::kNeedBytes && is_open) {
      feed_client(piece);
      feed_server();
    }
  }
  void feed_client(std::size_t piece) {
    const Bytes bytes = std::exchange(to_client, {});
    for (std::span<const std::byte> left = bytes; !left.empty() && state == State::kNeedBytes;) {
      auto in = left.first(std::min(piece, left.size()));
      const std::size_t before = in.size();
      state = client.next(in, to_server);
      left = left.subspan(before - in.size());
    }
  }
  void feed_server() {
    const Bytes bytes = std::exchange(to_server, {});
    is_open = !bytes.empty();
    for (std::span<const std::byte> in = bytes; !in.empty();) {
      const auto event = server.next(in, to_client);
      const auto* const want = std::get_if<WantExport>(&event);
      if (want == nullptr) return;
      if (want->name == "scratch") {
        server.accept(kOffer, to_client);
      } else {
        server.refuse(OptionReply::kErrUnknown, "there is no such export", to_client);
      }
    }
    is_open = is_open && !to_client.empty();
  }

  Handshake server{Offers{}};
  ClientHandshake client;
  Bytes to_client, to_server;
  State state = State::kNeedBytes;
  bool is_open = true;
};

TEST(NbdClient, OpensAnExport) {
  const Meeting meeting("scratch");
  ASSERT_EQ(meeting.state, State::kReady);
  EXPECT_EQ(meeting.client.session().size, kOffer.size);
  EXPECT_EQ(meeting.client.session().blocks, kOffer.blocks);
  EXPECT_NE(meeting.client.session().flags & kSendFlush, 0);
  EXPECT_FALSE(meeting.server.session().structured);
}

TEST(NbdClient, ARefusalIsReportedInTheServersWords) {
  const Meeting meeting("other");
  ASSERT_EQ(meeting.state, State::kFailed);
  EXPECT_EQ(meeting.client.error(), "refused the export: there is no such export");
}

RC_GTEST_PROP(NbdClientProperty, AnySplitOpensTheExport, ()) {
  const Meeting meeting("scratch", *rc::gen::inRange<std::size_t>(1, 40));
  RC_ASSERT(meeting.state == State::kReady);
  RC_ASSERT(meeting.client.session().blocks == kOffer.blocks);
}

// The client's error if the server sends these bytes.
std::string error_after(Bytes bytes) {
  ClientHandshake client("scratch");
  Bytes out;
  std::span<const std::byte> in = bytes;
  EXPECT_EQ(client.next(in, out), State::kFailed);
  return client.error();
}

Bytes greeting(std::uint16_t flags = kFixedNewstyle) {
  Bytes bytes(18);
  store_be(store_be(store_be(bytes.data(), kInitPasswd), kOptionMagic), flags);
  return bytes;
}

Bytes greeting_and_reply(std::uint64_t magic, std::uint32_t type, std::uint32_t length) {
  Bytes bytes = greeting();
  bytes.resize(18 + 20);
  std::byte* const at = store_be(store_be(bytes.data() + 18, magic), std::uint32_t{7});
  store_be(store_be(at, type), length);
  return bytes;
}

TEST(NbdClient, ServersThatBreakTheProtocolAreRefused) {
  EXPECT_EQ(error_after(Bytes(18)), "is not an NBD server");
  EXPECT_EQ(error_after(greeting(0)), "speaks the old NBD protocol, which has no options");
  EXPECT_EQ(error_after(greeting_and_reply(1, 1, 0)),
            "sent a reply that does not answer NBD_OPT_GO");
  EXPECT_EQ(error_after(greeting_and_reply(kOptionReplyMagic, 3, 1U << 20)),
            "sent an option reply that is too long");
  EXPECT_EQ(error_after(greeting_and_reply(kOptionReplyMagic, 3, 0)),
            "sent a reply that does not answer NBD_OPT_GO");
  EXPECT_EQ(error_after(greeting_and_reply(kOptionReplyMagic, 1, 0)),
            "did not describe the export");
  EXPECT_EQ(error_after(greeting_and_reply(kOptionReplyMagic, 0x8000'0005, 0)), "requires TLS");
}

TEST(NbdClient, RequestsAreThoseThatTheServerReads) {
  const Meeting meeting("scratch");
  const Request request{.cookie = 7, .offset = 4096, .length = 512, .command = Command::kRead};
  Bytes out;
  append_request(request, out);
  ASSERT_EQ(out.size(), kRequestBytes);
  RequestReader reader(meeting.server.session());
  std::span<const std::byte> in = out;
  const RequestEvent event = reader.next(in);
  ASSERT_EQ(event.kind, RequestEvent::Kind::kRequest);
  EXPECT_EQ(event.request.offset, request.offset);
  EXPECT_EQ(event.request.length, request.length);
  EXPECT_EQ(event.request.command, request.command);
}

TEST(NbdClient, RepliesAreSimple) {
  Bytes bytes(kReplyBytes);
  EXPECT_EQ(read_reply(bytes), std::nullopt);
  std::byte* const at = store_be(store_be(bytes.data(), kSimpleReplyMagic), std::uint32_t{5});
  store_be(at, std::uint64_t{9});
  EXPECT_EQ(read_reply(bytes), (SimpleReply{ErrorCode::kIo, 9}));
}

}  // namespace
}  // namespace weir::nbd
