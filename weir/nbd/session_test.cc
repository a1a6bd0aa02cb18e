// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/session.h"

#include <cerrno>
#include <memory>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/big_endian.h"
#include "weir/nbd/fake_port.h"

namespace weir::nbd {
namespace {

using serve::IoRequest;
using serve::StoreCommand;
using Step = serve::Session::Step;
using Event = serve::Session::Event;

// A client that sends given bytes.
class Sent : public std::vector<std::byte> {
 public:
  template <class T>
  Sent& put(T value) {
    resize(size() + sizeof value);
    store_be(data() + size() - sizeof value, value);
    return *this;
  }
  Sent& put(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    insert(end(), bytes.begin(), bytes.end());
    return *this;
  }
  Sent& ask_for(std::string_view name) {
    put(kClientFixedNewstyle | kClientNoZeroes).put(kOptionMagic);
    put(static_cast<std::uint32_t>(Option::kExportName));
    return put(static_cast<std::uint32_t>(name.size())).put(name);
  }
  Sent& request(Command command, std::uint64_t cookie, std::uint64_t offset, std::uint32_t length,
                std::uint16_t flags = 0) {
    put(kRequestMagic).put(flags).put(static_cast<std::uint16_t>(command));
    return put(cookie).put(offset).put(length);
  }
};

class NbdSessionTest : public testing::Test {
 protected:
  NbdSessionTest() : session_(begin_session(port_)) { session_->greet(out_); }

  Step negotiate(const Sent& client) {
    in_ = client;
    Step step = Step::kGoOn;
    while (step == Step::kGoOn) step = session_->negotiate(in_, out_);
    return step;
  }
  void open(std::string_view name) {
    greeting_.ask_for(name);
    ASSERT_EQ(negotiate(greeting_), Step::kOpen);
    EXPECT_TRUE(in_.empty());
  }
  Event next() {
    request_.clear();
    return session_->next(in_, request_);
  }

  FakePort port_;
  std::unique_ptr<serve::Session> session_;
  serve::Session::Output out_;
  Sent greeting_;
  std::span<const std::byte> in_;
  IoRequest request_;
};

TEST_F(NbdSessionTest, RequestsHaveTheIdentityThatWasClaimedAndAKind) {
  open("scratch,job=ior.n1");
  Sent client;
  client.request(Command::kRead, 7, 4096, 8192);
  client.request(Command::kTrim, 8, 0, 4096).request(Command::kFlush, 9, 0, 0);
  in_ = client;
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_EQ(request_.operation, OperationKind::kRead);
  EXPECT_EQ(request_.command, StoreCommand::kRead);
  EXPECT_EQ(request_.attributes.job, JobId("ior.n1"));
  EXPECT_EQ(request_.attributes.export_name, ExportName("scratch"));
  EXPECT_EQ(opcode_name(request_.attributes.opcode), "ost_read");
  EXPECT_EQ(big_endian(request_.tag), 7U) << "as it came";
  EXPECT_EQ(request_.offset, 4096U);
  EXPECT_EQ(request_.length, 8192U);
  EXPECT_EQ(request_.bytes, Bytes{8192});
  EXPECT_EQ(request_.opened->facts->name, "scratch");
  const ClassHint* const of_reads = request_.hint;
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_EQ(request_.operation, OperationKind::kDiscard);
  EXPECT_NE(request_.hint, of_reads) << "its opcode is another, and so may be its class";
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_EQ(request_.operation, OperationKind::kFlush);
  EXPECT_EQ(next(), Event::kNeedBytes);
}

TEST_F(NbdSessionTest, PayloadIsLeftToTheServer) {
  open("scratch");
  Sent client;
  client.request(Command::kWrite, 1, 0, 512, kFua).put(std::string_view("payload"));
  in_ = client;
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_EQ(request_.command, StoreCommand::kWrite);
  EXPECT_EQ(request_.flags, serve::kDurable);
  EXPECT_EQ(in_.size(), 7U);
  Sent more;
  more.request(Command::kFlush, 2, 0, 0);
  in_ = more;  // 505 bytes of payload later
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_EQ(big_endian(request_.tag), 2U);
}

TEST_F(NbdSessionTest, RepliesAreThoseOfTheProtocol) {
  open("scratch");
  request_.clear();
  request_.tag = 0x1122334455667788;
  request_.command = StoreCommand::kRead;
  session_->reply(request_, {});
  ASSERT_EQ(request_.head_size, kSimpleReplyBytes);
  EXPECT_EQ(load_be<std::uint32_t>(request_.head.data()), kSimpleReplyMagic);
  EXPECT_EQ(load_be<std::uint32_t>(request_.head.data() + 4), 0U);
  EXPECT_EQ(big_endian(load_be<std::uint64_t>(request_.head.data() + 8)), request_.tag);
  const auto error = [&](int code) {
    session_->reply(request_, {.error = code, .text = "text"});
    return load_be<std::uint32_t>(request_.head.data() + 4);
  };
  EXPECT_EQ(error(EIO), static_cast<std::uint32_t>(ErrorCode::kIo));
  EXPECT_EQ(error(EOPNOTSUPP), static_cast<std::uint32_t>(ErrorCode::kInval));
  request_.flags = serve::kOnlyIfFast;
  EXPECT_EQ(error(EOPNOTSUPP), static_cast<std::uint32_t>(ErrorCode::kNotSup));
}

// Negotiates an option without data, then the export.
Sent asking_for(Option option) {
  Sent client;
  client.put(kClientFixedNewstyle | kClientNoZeroes);
  client.put(kOptionMagic).put(static_cast<std::uint32_t>(option)).put(std::uint32_t{0});
  client.put(kOptionMagic).put(static_cast<std::uint32_t>(Option::kGo)).put(std::uint32_t{13});
  return client.put(std::uint32_t{7}).put(std::string_view("scratch")).put(std::uint16_t{0});
}

TEST_F(NbdSessionTest, AReadOfZeroesIsAHoleForClientsThatTakeChunks) {
  open("scratch");
  Sent client;
  client.request(Command::kRead, 7, 4096, 8192).request(Command::kFlush, 8, 0, 0);
  in_ = client;
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_FALSE(request_.takes_hole) << "simple replies have no holes";

  session_ = begin_session(port_);
  ASSERT_EQ(negotiate(asking_for(Option::kStructuredReply)), Step::kOpen);
  in_ = client;
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_TRUE(request_.takes_hole);
  session_->reply(request_, {.is_hole = true});
  EXPECT_EQ(request_.head_size, kChunkBytes + 12);
  EXPECT_EQ(load_be<std::uint16_t>(request_.head.data() + 6),
            static_cast<std::uint16_t>(ReplyType::kOffsetHole));
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_FALSE(request_.takes_hole) << "a flush";
}

TEST_F(NbdSessionTest, ExtendedHeadersAreForTheListenersThatOfferThem) {
  const Sent client = asking_for(Option::kExtendedHeaders);
  ASSERT_EQ(negotiate(client), Step::kOpen);
  Sent compact;
  in_ = compact.request(Command::kTrim, 7, 0, 512);
  EXPECT_EQ(next(), Event::kRequest);

  session_ = begin_extended_session(port_);
  ASSERT_EQ(negotiate(client), Step::kOpen);
  Sent wide;
  wide.put(kExtendedRequestMagic).put(std::uint16_t{0});
  wide.put(static_cast<std::uint16_t>(Command::kTrim)).put(std::uint64_t{7});
  in_ = wide.put(std::uint64_t{512}).put(std::uint64_t{1024});
  ASSERT_EQ(next(), Event::kRequest);
  EXPECT_EQ(request_.length, 1024U);
  session_->reply(request_, {});
  EXPECT_EQ(request_.head_size, kExtendedChunkBytes);
  EXPECT_EQ(load_be<std::uint64_t>(request_.head.data() + 16), 512U);
}

TEST_F(NbdSessionTest, WhatAnExportDoesNotAllowIsRefusedAndLeavesNoRequest) {
  open("archive");
  Sent client;
  client.request(Command::kWrite, 3, 0, 512);
  client.resize(client.size() + 512);
  client.request(Command::kRead, 4, FakePort::kSize, 512);
  in_ = client;
  ASSERT_EQ(next(), Event::kRefused);
  EXPECT_EQ(load_be<std::uint64_t>(request_.head.data() + 8), 3U);
  ASSERT_EQ(next(), Event::kRefused);
  EXPECT_EQ(load_be<std::uint64_t>(request_.head.data() + 8), 4U);
  EXPECT_EQ(next(), Event::kNeedBytes);
}

TEST_F(NbdSessionTest, AClientThatLeavesAndOneThatIsNotUnderstood) {
  open("");
  Sent client;
  client.request(Command::kDisc, 0, 0, 0);
  in_ = client;
  EXPECT_EQ(next(), Event::kEnd);

  const auto other = begin_session(port_);
  const std::vector<std::byte> zeroes(kRequestBytes);
  in_ = greeting_;
  Step step = Step::kGoOn;
  while (step == Step::kGoOn) step = other->negotiate(in_, out_);
  ASSERT_EQ(step, Step::kOpen);
  in_ = zeroes;
  EXPECT_EQ(other->next(in_, request_), Event::kBreak);
  EXPECT_EQ(other->problem(), "a request without the magic number");
}

TEST_F(NbdSessionTest, ExportsAndClaimsThatCannotBeHadEndTheOldWay) {
  for (const char* name : {"nowhere", "scratch,uid=0", "scratch,uid=x"}) {
    session_ = begin_session(port_);
    EXPECT_EQ(negotiate(Sent().ask_for(name)), Step::kBreak) << name;
  }
}

TEST(NbdSession, OpcodesAreThoseOfTheNearestRpc) {
  EXPECT_EQ(opcode_name(opcode_of(Command::kRead)), "ost_read");
  EXPECT_EQ(opcode_name(opcode_of(Command::kWrite)), "ost_write");
  EXPECT_EQ(opcode_name(opcode_of(Command::kFlush)), "ost_sync");
  EXPECT_EQ(opcode_name(opcode_of(Command::kTrim)), "ost_punch");
  EXPECT_EQ(opcode_name(opcode_of(Command::kCache)), "ost_ladvise");
  EXPECT_EQ(opcode_name(opcode_of(Command::kWriteZeroes)), "ost_fallocate");
  EXPECT_EQ(opcode_name(opcode_of(Command::kBlockStatus)), "ost_seek");
}

TEST(NbdSession, WhatMayMakeTheDeviceWriteCountsItsBytesAndNothingIsFree) {
  const auto bytes = [](Command command, unsigned flags = 0) {
    Request request;
    request.length = 1U << 30;
    request.command = command;
    request.flags = static_cast<std::uint16_t>(flags);
    return bytes_of(request);
  };
  constexpr Bytes kLength{1U << 30};
  EXPECT_EQ(bytes(Command::kRead), kLength);
  EXPECT_EQ(bytes(Command::kWrite), kLength);
  EXPECT_EQ(bytes(Command::kCache), kLength);
  EXPECT_EQ(bytes(Command::kWriteZeroes), kLength) << "written where no hole can be punched";
  EXPECT_EQ(bytes(Command::kWriteZeroes, kNoHole), kLength);
  EXPECT_EQ(bytes(Command::kWriteZeroes, kNoHole | kFastZero), kLength);
  EXPECT_EQ(bytes(Command::kWriteZeroes, kFastZero), serve::kOperationBytes);
  EXPECT_EQ(bytes(Command::kTrim), serve::kOperationBytes);
  EXPECT_EQ(bytes(Command::kFlush), serve::kOperationBytes);
  EXPECT_EQ(bytes(Command::kBlockStatus), serve::kOperationBytes);
}

}  // namespace
}  // namespace weir::nbd
