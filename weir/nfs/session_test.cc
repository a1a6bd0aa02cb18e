// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/session.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/classify/opcode.h"
#include "weir/nfs/codec/callback.h"
#include "weir/nfs/codec/message_writer.h"
#include "weir/nfs/codec/mount.h"
#include "weir/nfs/codec/record.h"
#include "weir/nfs/codec/v3.h"
#include "weir/nfs/fake_port.h"
#include "weir/serve/session_check.h"

namespace weir::nfs {
namespace {

using std::chrono::seconds;
using Event = serve::Session::Event;
using serve::IoRequest;

constexpr std::uint32_t kGetAttr3 = 1;
constexpr std::uint32_t kRead3 = 6;
constexpr std::uint32_t kWrite3 = 7;
constexpr std::uint32_t kRootUid = 0;

std::string taken(serve::ByteQueue& queue) {
  std::string text;
  std::array<iovec, 4> parts{};
  while (const std::size_t used = queue.parts(parts)) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < used; ++i) {
      text.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
      bytes += parts[i].iov_len;
    }
    queue.drop(bytes);
  }
  return text;
}

std::string get_attributes(std::uint32_t xid, std::uint32_t uid = 1000) {
  return sys_call(xid, kNfsVersion3, kGetAttr3, uid).opaque("handle").record();
}

std::string read_file(std::uint32_t xid, std::uint32_t count, std::uint32_t uid = 1000) {
  return sys_call(xid, kNfsVersion3, kRead3, uid).opaque("handle").u64(0).u32(count).record();
}

std::string write_file(std::uint32_t xid, std::size_t bytes) {
  return sys_call(xid, kNfsVersion3, kWrite3, 1000)
      .opaque("handle")
      .u64(0)
      .u32(static_cast<std::uint32_t>(bytes))
      .u32(0)
      .opaque(std::string(bytes, 'w'))
      .record();
}

CompoundWriter read4(std::uint32_t slot) {
  CompoundWriter writer(1);
  writer.sequence(slot, 1).put_handle("handle");
  writer.op(Op::kRead).zeros(16).u64(0).u32(4096);
  return writer;
}

// As `message`, with several fragments of this many bytes each.
std::string in_fragments(const std::string& record, std::size_t size) {
  const std::string message = record.substr(4);
  std::string all;
  for (std::size_t at = 0; at < message.size(); at += size) {
    const std::string part = message.substr(at, size);
    const bool is_last = at + size >= message.size();
    const auto length = static_cast<std::uint32_t>(part.size());
    all += XdrWriter().u32(length | (is_last ? 1U << 31 : 0U)).text() + part;
  }
  return all;
}

class NfsSessionTest : public testing::Test {
 protected:
  explicit NfsSessionTest(const serve::NfsOptions& options = {})
      : gateway_(options, {.address = {}, .size = 0, .text = "server"}) {
    port_.identity.nid = parse_nid("10.0.0.1@tcp").value();
    session_ = begin_session(port_, gateway_);
    std::vector<std::byte> out;
    session_->greet(out);
    EXPECT_TRUE(out.empty());
  }
  ~NfsSessionTest() override {
    if (session_ != nullptr) session_->closed();
    EXPECT_EQ(port_.held, 0U);
  }

  // New requests wait in queued_. Returns the last event.
  Event feed(std::string_view text) {
    std::span<const std::byte> in = std::as_bytes(std::span(text.data(), text.size()));
    for (;;) {
      auto request = std::make_unique<IoRequest>();
      request->clear();
      const Event event = session_->next(in, *request);
      EXPECT_TRUE(event != Event::kNeedBytes || in.empty());
      if (event == Event::kNoRoom) left_.assign(text.substr(text.size() - in.size()));
      if (event != Event::kRequest) return event;
      EXPECT_EQ(serve::request_fault(*request), "");
      request->id = ++ids_;
      queued_.push_back(std::move(request));
      if (queued_.back()->is_exempt) perform(queued_.size() - 1);
    }
  }
  Event feed_pieces(const std::string& text) {
    Event last = Event::kNeedBytes;
    for (std::size_t at = 0; at < text.size() && last == Event::kNeedBytes; at += 30'000) {
      last = feed(std::string_view(text).substr(at, 30'000));
    }
    return last;
  }
  void perform(std::size_t index = 0) {
    session_->perform(*queued_[index], {});
    performed_.push_back(std::move(queued_[index]));
    queued_.erase(queued_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void from_server(std::string_view text) {
    session_->from_server(std::as_bytes(std::span(text.data(), text.size())));
  }
  std::string to_server() {
    std::string text = taken(*session_->to_server());
    session_->transferred();
    return text;
  }
  std::string to_client() {
    std::string text = taken(*session_->to_client());
    session_->transferred();
    return text;
  }

  FakePort port_;
  Gateway gateway_;
  std::unique_ptr<serve::Session> session_;
  std::deque<std::unique_ptr<IoRequest>> queued_;
  std::vector<std::unique_ptr<IoRequest>> performed_;
  std::uint64_t ids_ = 0;
  std::string left_;
};

TEST_F(NfsSessionTest, ConnectsToTheServerFirst) { EXPECT_EQ(port_.connected_to, "server"); }

TEST_F(NfsSessionTest, ForwardsACallWhenItsTurnHasComeAndItsReplyAtOnce) {
  EXPECT_EQ(feed(read_file(7, 1 << 20)), Event::kNeedBytes);
  ASSERT_EQ(queued_.size(), 1U);
  const IoRequest& request = *queued_[0];
  EXPECT_EQ(request.attributes.uid, 1000U);
  EXPECT_EQ(request.attributes.gid, 100U);
  EXPECT_EQ(request.attributes.job, JobId("uid.1000"));
  EXPECT_EQ(request.attributes.opcode, opcode_number("ost_read"));
  EXPECT_EQ(request.operation, OperationKind::kRead);
  EXPECT_EQ(request.bytes, weir::Bytes{1 << 20});
  EXPECT_FALSE(request.is_exempt);
  EXPECT_EQ(to_server(), "");
  perform();
  EXPECT_EQ(to_server(), read_file(7, 1 << 20));
  EXPECT_FALSE(session_->is_settled());
  const std::string reply =
      success_header(7).u32(0).u32(0).u32(10).u32(1).opaque("0123456789").record();
  from_server(reply);
  EXPECT_EQ(to_client(), reply);
  ASSERT_TRUE(port_.answers.contains(1));
  EXPECT_EQ(port_.answers[1].moved, weir::Bytes{10}) << "as many as it returned";
  EXPECT_TRUE(port_.answers[1].is_forwarded);
  EXPECT_TRUE(session_->is_settled());
}

TEST_F(NfsSessionTest, AListingIsAsManyOperationsAsItsReplyIsLong) {
  feed(sys_call(1, kNfsVersion3, static_cast<std::uint32_t>(Proc3::kReadDirPlus), 1000)
           .opaque("handle")
           .u64(0)
           .u64(0)
           .u32(8192)
           .u32(65'536)
           .record());
  ASSERT_EQ(queued_.size(), 1U);
  perform();
  from_server(success_header(1).u32(0).raw(std::string(40'000, '\0')).record());
  EXPECT_EQ(port_.answers[1].operations, 1U + 40'000 / 4096);
  EXPECT_EQ(port_.answers[1].moved, weir::Bytes{40'000});
  feed(get_attributes(2));
  perform();
  from_server(success_header(2).u32(5).record());
  EXPECT_EQ(port_.answers[2].operations, 1U);
}

TEST_F(NfsSessionTest, ACallIsNotChargedForMoreThanARecordCanHold) {
  CompoundWriter writer(0);
  writer.put_handle("handle");
  for (int i = 0; i < 100; ++i) writer.op(Op::kRead).zeros(16).u64(0).u32(0xFFFF'FFFF);
  feed(writer.call(1, 1000).record() + read_file(2, 0xFFFF'FFFF));
  ASSERT_EQ(queued_.size(), 2U);
  EXPECT_EQ(queued_[0]->bytes, weir::Bytes{kChargeMax});
  EXPECT_EQ(queued_[1]->bytes, weir::Bytes{kChargeMax});
}

TEST_F(NfsSessionTest, ALeaseThatChangesWhileItRunsBoundsTheWait) {
  const auto tell = [&](std::uint32_t xid, std::uint32_t lease) {
    CompoundWriter ask(0);
    ask.op(Op::kPutRootFh);
    ask.op(Op::kGetAttr).u32(1).u32(1U << 10);
    feed(ask.call(xid, kRootUid).record());
    CompoundWriter told(0);
    told.result(Op::kPutRootFh);
    told.result(Op::kGetAttr).u32(1).u32(1U << 10).u32(4).u32(lease);
    from_server(told.reply(xid).record());
  };
  EXPECT_EQ(gateway_.wait_max(), seconds{10}) << "max_wait";
  tell(1, 15);
  EXPECT_EQ(gateway_.wait_max(), seconds{5});
  port_.wait = seconds{6};
  feed(read4(0).call(10, 1000).record());
  EXPECT_EQ(gateway_.counters().delayed, 1U);
  tell(2, 0);
  EXPECT_EQ(gateway_.lease(), seconds{15}) << "no lease at all is not believed";
  tell(3, 0xFFFF'FFFF);
  EXPECT_EQ(gateway_.wait_max(), seconds{10});
  feed(read4(1).call(11, 1000).record());
  EXPECT_EQ(gateway_.counters().delayed, 1U);
}

TEST_F(NfsSessionTest, AnySplitOfTheBytesForwardsTheSame) {
  const std::string calls = get_attributes(1) + write_file(2, 70'000) + get_attributes(3);
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{1460}}) {
    const auto before = ids_;
    for (std::size_t at = 0; at < calls.size(); at += size) {
      ASSERT_EQ(feed(std::string_view(calls).substr(at, size)), Event::kNeedBytes);
    }
    ASSERT_EQ(ids_ - before, 3U);
    while (!queued_.empty()) perform();
    EXPECT_EQ(to_server(), calls);
    for (const std::uint32_t xid : {1U, 2U, 3U}) from_server(success_header(xid).u32(5).record());
    to_client();
  }
}

TEST_F(NfsSessionTest, WhatTheSocketsTakeAtOnceIsForwardedInOrder) {
  port_.session = session_.get();
  std::uint32_t xid = 0;
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{10'000}, std::size_t{1} << 20}) {
    port_.takes_at_once = at_once;
    port_.server_took.clear();
    port_.client_took.clear();
    const std::string write = write_file(++xid, 300'000);
    ASSERT_EQ(feed(std::string_view(write).substr(0, 30'000)), Event::kNeedBytes);
    EXPECT_EQ(session_->streamed_from_client(), 0U) << "its turn has not come";
    perform();
    EXPECT_FALSE(session_->takes_from_client()) << "its first bytes wait";
    std::string sent = to_server();
    EXPECT_EQ(session_->streamed_from_client(), write.size() - 30'000);
    EXPECT_EQ(feed_pieces(write.substr(30'000)), Event::kNeedBytes);
    EXPECT_EQ(session_->takes_from_client(), true) << "the message has ended";
    EXPECT_EQ(sent + port_.server_took + to_server(), write);

    const std::string reply = success_header(xid).u32(0).opaque(std::string(200'000, 'r')).record();
    from_server(std::string_view(reply).substr(0, 50'000));
    EXPECT_EQ(session_->takes_from_server(), at_once >= 50'000);
    EXPECT_EQ(session_->takes_large_pieces(), at_once >= 50'000);
    from_server(std::string_view(reply).substr(50'000));
    EXPECT_TRUE(session_->takes_from_server());
    EXPECT_EQ(port_.client_took + to_client(), reply);
  }
}

// Replies stay in the receive buffer as long as they follow each other there.
TEST_F(NfsSessionTest, RepliesThatArriveTogetherAreOnePiece) {
  port_.session = session_.get();
  const auto reply = [](std::uint32_t xid) { return success_header(xid).u32(5).record(); };
  std::string all;
  for (std::uint32_t xid = 1; xid <= 6; ++xid) {
    feed(get_attributes(xid));
    perform();
    all += xid == 3 ? in_fragments(reply(xid), 8) : reply(xid);
  }
  to_server();
  const std::string expected =
      reply(1) + reply(2) + reply(3) + reply(4) + reply(5) + reply(6) + reply(7);
  for (const std::size_t at_once : {std::size_t{0}, std::size_t{5}, std::size_t{1} << 20}) {
    SCOPED_TRACE(at_once);
    port_.takes_at_once = at_once;
    port_.client_took.clear();
    port_.client_pieces = 0;
    from_server(all + reply(7).substr(0, 10));  // nobody waits for it
    EXPECT_EQ(port_.client_pieces, 2) << "before and after the one that was joined";
    from_server(reply(7).substr(10));
    EXPECT_EQ(port_.client_took + to_client(), expected);
    EXPECT_TRUE(session_->is_settled());
  }
}

TEST_F(NfsSessionTest, AMendedReplyKeepsItsPlace) {
  const auto reply = [](std::uint32_t xid) { return success_header(xid).u32(5).record(); };
  port_.session = session_.get();
  port_.takes_at_once = std::size_t{1} << 20;
  feed(get_attributes(1) + get_attributes(3));
  perform();
  perform();
  port_.wait = seconds{60};
  feed(read4(0).call(2, 1000).record());
  ASSERT_EQ(gateway_.counters().delayed, 1U);
  to_server();
  CompoundWriter done(1);
  done.sequence_result(0, 1);
  from_server(reply(1) + done.reply(2).record() + reply(3));
  CompoundWriter delayed(1);
  delayed.sequence_result(0, 1).result(Op::kPutFh, kDelay);
  EXPECT_EQ(port_.client_took + to_client(),
            reply(1) + delayed.reply(2, kDelay).record() + reply(3));
}

TEST_F(NfsSessionTest, FragmentsAreJoinedUnlessTheMessageIsLong) {
  const std::string record = get_attributes(1);
  EXPECT_EQ(feed(in_fragments(record, 4)), Event::kNeedBytes);
  perform();
  EXPECT_EQ(to_server(), record);
  const std::string write = write_file(2, 300'000);
  EXPECT_EQ(feed(in_fragments(write, 9000)), Event::kNeedBytes);
  perform();
  std::string sent = to_server();
  std::string message;
  RecordReader reader;
  std::span<const std::byte> in = std::as_bytes(std::span(sent));
  bool is_complete = false;
  while (!in.empty()) {
    const RecordEvent piece = reader.next(in);
    ASSERT_NE(piece.kind, RecordEvent::Kind::kBreak);
    message.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
    is_complete = piece.is_last;
  }
  EXPECT_TRUE(is_complete);
  EXPECT_EQ(message, write.substr(4));
}

TEST_F(NfsSessionTest, ALongWriteIsForwardedWhileItArrives) {
  const std::string write = write_file(5, 1 << 20);
  EXPECT_EQ(feed(std::string_view(write).substr(0, 30'000)), Event::kNeedBytes);
  ASSERT_EQ(queued_.size(), 1U);
  EXPECT_EQ(queued_[0]->bytes, weir::Bytes{1 << 20});
  perform();
  EXPECT_EQ(to_server(), write.substr(0, 30'000));
  for (std::size_t at = 30'000; at < write.size(); at += 32'768) {
    feed(std::string_view(write).substr(at, 32'768));
    EXPECT_EQ(to_server(), write.substr(at, 32'768));
    EXPECT_LT(port_.held, 65'536U);
  }
}

TEST_F(NfsSessionTest, ACallWhoseTurnComesWithinAnotherMessageWaitsForItsEnd) {
  feed(get_attributes(1));
  const std::string write = write_file(5, 100'000);
  feed(std::string_view(write).substr(0, 30'000));
  ASSERT_EQ(queued_.size(), 2U);
  perform(1);
  perform(0);
  EXPECT_EQ(to_server(), write.substr(0, 30'000));
  feed(std::string_view(write).substr(30'000));
  EXPECT_EQ(to_server(), write.substr(30'000) + get_attributes(1));
}

TEST_F(NfsSessionTest, AParkedWriteIsHeldAsFarAsThereIsMemory) {
  port_.memory = 200'000;
  const std::string write = write_file(5, 1 << 20);
  std::size_t at = 0;
  Event event = Event::kNeedBytes;
  for (; event == Event::kNeedBytes && at < write.size(); at += 32'768) {
    event = feed(std::string_view(write).substr(at, 32'768));
  }
  EXPECT_EQ(event, Event::kNoRoom);
  EXPECT_LE(port_.held, port_.memory);
  perform();
  std::string sent = to_server();
  while (at - left_.size() < write.size() && !left_.empty()) {
    const std::string again = std::exchange(left_, {});
    ASSERT_EQ(feed(again), Event::kNeedBytes);
    sent += to_server();
  }
  for (; at < write.size(); at += 32'768) {
    ASSERT_EQ(feed(std::string_view(write).substr(at, 32'768)), Event::kNeedBytes);
    sent += to_server();
  }
  EXPECT_TRUE(sent == write);
}

TEST_F(NfsSessionTest, NothingMoreIsTakenFromTheServerThanTheClientReads) {
  std::uint32_t xid = 0;
  std::size_t waiting = 0;
  while (session_->takes_from_server()) {
    feed(read_file(++xid, 32'768));
    perform();
    const std::string data(32'768, 'r');
    const std::string reply =
        success_header(xid).u32(0).u32(0).u32(32'768).u32(1).opaque(data).record();
    from_server(reply);
    waiting += reply.size();
  }
  EXPECT_LE(waiting, (1U << 20) + 40'000);
  EXPECT_GE(port_.held, (1U << 20) - 40'000);
  EXPECT_EQ(to_client().size(), waiting);
  EXPECT_TRUE(session_->takes_from_server());
  to_server();
  EXPECT_EQ(port_.held, 0U);
}

TEST_F(NfsSessionTest, TheRestOfALongReplyIsTakenWhenTheClientHasReadItsBeginning) {
  feed(read_file(1, 4 << 20));
  perform();
  to_server();
  const std::string data(4 << 20, 'r');
  const std::string reply =
      success_header(1).u32(0).u32(0).u32(4 << 20).u32(1).opaque(data).record();
  from_server(std::string_view(reply).substr(0, 32'768));
  EXPECT_EQ(port_.answers[1].moved, weir::Bytes{4 << 20}) << "its first bytes say how much";
  EXPECT_FALSE(session_->takes_from_server());
  std::string got = to_client();
  port_.memory = 0;
  for (std::size_t at = got.size(); at < reply.size(); at = got.size()) {
    ASSERT_TRUE(session_->takes_from_server());
    from_server(std::string_view(reply).substr(at, 65'536));
    if (at + 65'536 < reply.size()) EXPECT_FALSE(session_->takes_from_server());
    got += to_client();
  }
  EXPECT_EQ(got, reply);
  EXPECT_EQ(port_.held, 0U);
  // Memory of replies that the client has not read is released too: see the destructor.
  port_.memory = 1 << 20;
  from_server(success_header(5).raw(std::string(100'000, 'x')).record());
  EXPECT_GT(port_.held, 0U);
}

TEST_F(NfsSessionTest, WhatKeepsThingsAliveIsNeitherQueuedNorCharged) {
  const std::string ping = call_header(1, kNfsProgram, kNfsVersion3, 0, Flavor::kNone, "").record();
  CompoundWriter renew(1);
  renew.sequence(0, 5);
  const std::string renewal = renew.call(2, kRootUid).record();
  feed(ping + renewal);
  EXPECT_TRUE(queued_.empty());
  EXPECT_TRUE(performed_.empty());
  EXPECT_EQ(to_server(), ping + renewal);
  EXPECT_EQ(gateway_.counters().free, 2U);
}

TEST_F(NfsSessionTest, WhatReleasesIsChargedAndDoesNotWait) {
  CompoundWriter close(1);
  close.sequence(0, 5).put_handle("handle");
  close.op(Op::kClose).u32(0).zeros(16);
  feed(close.call(3, 1000).record());
  ASSERT_EQ(performed_.size(), 1U);
  EXPECT_TRUE(performed_[0]->is_exempt);
  EXPECT_EQ(to_server(), close.call(3, 1000).record());
  EXPECT_EQ(gateway_.counters().exempt, 1U);
}

TEST_F(NfsSessionTest, ARetransmissionIsDroppedWhileTheFirstWaitsAndForwardedAfterwards) {
  feed(get_attributes(9) + get_attributes(9));
  ASSERT_EQ(queued_.size(), 1U);
  EXPECT_EQ(gateway_.counters().duplicates_dropped, 1U);
  perform();
  EXPECT_EQ(to_server(), get_attributes(9));
  feed(get_attributes(9));
  EXPECT_TRUE(queued_.empty());
  EXPECT_EQ(to_server(), get_attributes(9));
  EXPECT_EQ(gateway_.counters().duplicates_forwarded, 1U);
  const std::string reply = success_header(9).u32(5).record();
  from_server(reply + reply);
  EXPECT_EQ(to_client(), reply + reply);
  EXPECT_EQ(port_.answers.size(), 1U) << "charged once";
  EXPECT_EQ(gateway_.counters().replies_unmatched, 0U);
  EXPECT_TRUE(session_->is_settled());
}

TEST_F(NfsSessionTest, AnotherCallWithTheSameXidEndsTheConnection) {
  EXPECT_EQ(feed(get_attributes(9) + get_attributes(9, 1001)), Event::kBreak);
  EXPECT_EQ(session_->problem(), "a call with the xid of another one that is not answered yet");
}

TEST_F(NfsSessionTest, RepliesToNobodyArePassedOn) {
  const std::string reply = success_header(77).u32(0).record();
  from_server(reply);
  EXPECT_EQ(to_client(), reply);
  EXPECT_EQ(gateway_.counters().replies_unmatched, 1U);
}

TEST_F(NfsSessionTest, CallbacksHaveXidsOfTheirOwn) {
  feed(get_attributes(9));
  perform();
  to_server();
  XdrWriter callback =
      call_header(9, kTransientProgram, kCallbackVersion, kCallbackCompound, Flavor::kNone, "");
  callback.u32(0).u32(1).u32(0).u32(1);
  callback.u32(static_cast<std::uint32_t>(CallbackOp::kRecall)).zeros(16).u32(0).opaque("handle");
  from_server(callback.record());
  EXPECT_EQ(to_client(), callback.record());
  EXPECT_TRUE(port_.answers.empty()) << "it is no reply";
  const std::string answer = success_header(9).u32(0).opaque("").u32(0).record();
  feed(answer);
  EXPECT_EQ(to_server(), answer);
  EXPECT_TRUE(port_.answers.empty());
  // The server recalls its delegation: calls on that file do not wait.
  feed(read_file(10, 4096));
  EXPECT_TRUE(queued_.empty());
  EXPECT_EQ(to_server(), read_file(10, 4096));
  port_.time += Gateway::kLeaseUnknown;
  feed(read_file(11, 4096));
  EXPECT_EQ(queued_.size(), 1U);
}

TEST_F(NfsSessionTest, ASessionKeepsSlotsForOthers) {
  port_.wait = seconds{1};
  for (std::uint32_t slot = 0; slot < 64; ++slot) feed(read4(slot).call(slot, 1000).record());
  EXPECT_EQ(queued_.size(), 16U) << "a quarter of 64";
  EXPECT_EQ(gateway_.counters().delayed, 48U);
  CompoundWriter alone(1);
  alone.sequence(63, 1);
  const std::string sent = to_server();
  EXPECT_TRUE(sent.ends_with(alone.call(63, 1000).record()));
  // The server executes SEQUENCE; the client sends the call again.
  CompoundWriter done(1);
  done.sequence_result(63, 1);
  from_server(done.reply(63).record());
  CompoundWriter delayed(1);
  delayed.sequence_result(63, 1).result(Op::kPutFh, kDelay);
  EXPECT_EQ(to_client(), delayed.reply(63, kDelay).record());
  EXPECT_TRUE(port_.answers.empty()) << "it was not charged";
  // Another user can use further slots, up to half of all.
  for (std::uint32_t slot = 64; slot < 128; ++slot) feed(read4(slot).call(slot, 1001).record());
  EXPECT_EQ(queued_.size(), 32U);
  const std::uint32_t waiting = gateway_.waiting(SessionId{});
  EXPECT_EQ(waiting, 32U);
  perform();
  EXPECT_EQ(gateway_.waiting(SessionId{}), 31U);
  session_->closed();
  EXPECT_EQ(gateway_.waiting(SessionId{}), 0U);
}

TEST_F(NfsSessionTest, ACallOfASessionWaitsForMaxWaitAtMost) {
  port_.wait = seconds{11};
  feed(read4(0).call(1, 1000).record());
  EXPECT_TRUE(queued_.empty());
  EXPECT_EQ(gateway_.counters().delayed, 1U);
  feed(read_file(2, 4096));
  EXPECT_EQ(queued_.size(), 1U) << "version 3 waits";
  port_.wait = seconds{9};
  gateway_.set_lease(seconds{15});
  feed(read4(1).call(3, 1000).record());
  EXPECT_EQ(gateway_.counters().delayed, 2U) << "a third of the lease";
}

// A write of a session, in pieces as they are received.
std::string write4(std::uint32_t xid, std::size_t bytes) {
  CompoundWriter writer(1);
  writer.sequence(xid % 64, 1).put_handle("handle");
  writer.op(Op::kWrite).zeros(16).u64(0).u32(0).opaque(std::string(bytes, 'w'));
  return writer.call(xid, 1000).record();
}

// What the server gets of a call that is refused.
std::string alone4(std::uint32_t xid) {
  CompoundWriter writer(1);
  return writer.sequence(xid % 64, 1).call(xid, 1000).record();
}

struct DelayingSessionTest : NfsSessionTest {
  DelayingSessionTest() : NfsSessionTest(options()) {
    port_.wait = gateway_.wait_max() + seconds{1};
  }
  static serve::NfsOptions options() {
    serve::NfsOptions options;
    options.delays_v3 = options.delays_v40 = true;
    return options;
  }
  // A reply without attributes, which has this many words after its status.
  static std::string jukebox(std::uint32_t xid, std::size_t words) {
    return success_header(xid).u32(kJukebox).zeros(4 * words).record();
  }
};

TEST_F(DelayingSessionTest, AnswersEveryProcedureOfVersion3WithoutTheServer) {
  for (std::uint32_t number = 1; number <= 21; ++number) {
    const Procedure3& procedure = *find_procedure3(kNfsProgram, number);
    feed(sys_call(number, kNfsVersion3, number, 1000).opaque("handle").zeros(64).record());
    EXPECT_EQ(to_client(), jukebox(number, procedure.failure_words)) << number;
  }
  EXPECT_EQ(gateway_.counters().delayed, 21U);
  EXPECT_EQ(to_server(), "");
  EXPECT_TRUE(queued_.empty());
  EXPECT_EQ(port_.held, 0U);
  feed(get_attributes(1));
  EXPECT_EQ(to_client(), jukebox(1, 0)) << "the xid is free again";
}

TEST_F(DelayingSessionTest, ALongWriteIsAnsweredAndItsPayloadIsLeftOut) {
  feed_pieces(write_file(1, 200'000) + read_file(2, 4096));
  EXPECT_EQ(to_client(), jukebox(1, 2) + jukebox(2, 1));
  EXPECT_EQ(to_server(), "");
}

TEST_F(DelayingSessionTest, AnswersVersion40ButNotWhatReleases) {
  CompoundWriter look(0);
  look.put_handle("handle");
  look.op(Op::kGetAttr).u32(1).u32(1);
  feed(look.call(1, 1000).record());
  CompoundWriter later(0);
  later.result(Op::kPutFh, kDelay);
  EXPECT_EQ(to_client(), later.reply(1, kDelay).record());
  CompoundWriter close(0);
  close.put_handle("handle");
  close.op(Op::kClose).zeros(20);
  feed(close.call(2, 1000).record());
  EXPECT_EQ(to_server(), close.call(2, 1000).record());
  EXPECT_EQ(gateway_.counters().delayed, 1U);
}

TEST_F(DelayingSessionTest, CallsThatMayWaitAreQueued) {
  port_.wait = gateway_.wait_max();
  feed(get_attributes(1));
  EXPECT_EQ(queued_.size(), 1U);
}

TEST_F(NfsSessionTest, AWriteIsRefusedLastAndItsPayloadIsLeftOut) {
  port_.wait = seconds{1};
  for (std::uint32_t xid = 0; xid < 50; ++xid) {
    ASSERT_EQ(feed_pieces(write4(xid, 200'000)), Event::kNeedBytes);
  }
  EXPECT_EQ(queued_.size(), 48U) << "16 of 64 slots are left";
  EXPECT_EQ(gateway_.counters().delayed, 2U);
  EXPECT_LT(to_server().size(), 1000U);
}

TEST_F(NfsSessionTest, RefusalsOfWritesAreSpread) {
  port_.wait = seconds{60};
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  for (std::uint32_t xid = 0; xid < 4; ++xid) feed_pieces(write4(xid, kMiB));
  EXPECT_TRUE(queued_.empty());
  EXPECT_EQ(gateway_.counters().delayed, 4U);
  EXPECT_EQ(to_server(), alone4(0));
  feed(read4(9).call(9, 1000).record());
  EXPECT_EQ(to_server(), alone4(9)) << "others are refused at once";
  EXPECT_LT(port_.held, 10'000U) << "without their payload";
  EXPECT_EQ(port_.wakes_at - port_.time, Gateway::kSlotEvery);
  port_.time = port_.wakes_at;
  session_->wake();
  EXPECT_EQ(to_server(), alone4(1));
  EXPECT_GT(port_.wakes_at, port_.time);
  EXPECT_TRUE(session_->stop());
  EXPECT_EQ(to_server(), alone4(2) + alone4(3)) << "a drain answers them";
}

TEST_F(NfsSessionTest, AWriteIsRefusedAfterTwiceItsSizeHasLeftTheQueue) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  port_.wait = seconds{1};
  for (std::uint32_t xid = 0; xid < 4; ++xid) feed_pieces(write4(xid, kMiB));
  port_.wait = seconds{60};
  for (std::uint32_t xid = 4; xid < 7; ++xid) feed_pieces(write4(xid, kMiB));
  ASSERT_EQ(queued_.size(), 4U);
  EXPECT_EQ(to_server(), alone4(4)) << "the first refusal";
  for (const std::uint32_t xid : {0U, 2U}) {
    perform();
    EXPECT_EQ(to_server(), write4(xid, kMiB));
    perform();
    EXPECT_EQ(to_server(), write4(xid + 1, kMiB) + alone4(5 + xid / 2));
  }
}

TEST_F(NfsSessionTest, ARefusalOfAWriteWaitsNoLongerThanACallMay) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  port_.wait = seconds{60};
  for (std::uint32_t xid = 0; xid < 2; ++xid) feed_pieces(write4(xid, kMiB));
  EXPECT_EQ(to_server(), alone4(0));
  gateway_.set_slots({}, 64);  // it is not forgotten when no call of it waits
  const Instant end = port_.time + gateway_.wait_max();
  port_.wait = seconds{1};
  for (std::uint32_t xid = 100; port_.time < end; ++xid) {
    feed(read4(1).call(xid, 1000).record());
    perform();  // frees a slot of the session
    session_->wake();
    EXPECT_EQ(to_server(), read4(1).call(xid, 1000).record());
    port_.time += std::chrono::milliseconds{100};
  }
  session_->wake();
  EXPECT_EQ(to_server(), alone4(1));
}

TEST_F(NfsSessionTest, AWriteWithoutMemoryIsRefusedInsteadOfKeepingOthersWaiting) {
  port_.wait = seconds{1};
  port_.memory = std::size_t{4} << 20;
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  for (std::uint32_t xid = 0; xid < 8; ++xid) {
    ASSERT_EQ(feed_pieces(write4(xid, kMiB)), Event::kNeedBytes) << xid;
  }
  EXPECT_EQ(queued_.size(), 3U) << "1 MiB is left";
  EXPECT_EQ(gateway_.counters().delayed, 5U);
  EXPECT_EQ(feed(read4(20).call(20, 1001).record()), Event::kNeedBytes);
  EXPECT_EQ(queued_.size(), 4U) << "another user's call";
}

TEST_F(NfsSessionTest, CallsThatWaitWithoutALimitKeepSlotsForOthersToo) {
  for (std::uint32_t slot = 0; slot < 20; ++slot) feed(read4(slot).call(slot, 1000).record());
  EXPECT_EQ(queued_.size(), 20U) << "they might run at once";
  port_.time += Gateway::kLongWait;  // but the server is busy
  feed(read4(20).call(20, 1000).record());
  EXPECT_EQ(queued_.size(), 20U);
  EXPECT_EQ(gateway_.counters().delayed, 1U);
  feed(read4(21).call(21, 1001).record());
  EXPECT_EQ(queued_.size(), 21U);
  port_.time += std::chrono::milliseconds{1};
  for (std::uint32_t i = 0; i < 10; ++i) perform();
  feed(read4(22).call(22, 1000).record());
  EXPECT_EQ(queued_.size(), 12U) << "10 of its own are parked";
}

TEST_F(NfsSessionTest, NoCallJoinsThoseThatHaveWaitedForMaxWait) {
  feed(read4(0).call(1, 1000).record());
  feed(read4(1).call(2, 1000).record());
  port_.time += gateway_.wait_max() + Nanoseconds{1};
  feed(read4(2).call(3, 1000).record());
  EXPECT_EQ(gateway_.counters().delayed, 1U);
  perform();
  feed(read4(3).call(4, 1000).record());
  EXPECT_EQ(gateway_.counters().delayed, 2U) << "the last one waited for as long";
}

TEST_F(NfsSessionTest, SlotsAreThoseThatTheServerWantsToBeUsed) {
  CompoundWriter alone(1);
  alone.sequence(0, 1).put_handle("handle");
  alone.op(Op::kGetAttr).u32(1).u32(1);
  feed(alone.call(1, 1000).record());
  perform();
  CompoundWriter done(1);
  done.sequence_result(0, 1, 7).result(Op::kPutFh);
  done.result(Op::kGetAttr, 5);
  from_server(done.reply(1, 5).record());
  port_.wait = seconds{1};
  for (std::uint32_t slot = 0; slot < 8; ++slot) feed(read4(slot).call(100 + slot, 1).record());
  EXPECT_EQ(gateway_.waiting(SessionId{}), 2U) << "a quarter of 8";
}

TEST_F(NfsSessionTest, SlotsAreThoseThatTheServerGrants) {
  CompoundWriter create(1);
  XdrWriter& arguments = create.op(Op::kCreateSession).u64(1).u32(1).u32(0);
  for (int channel = 0; channel < 2; ++channel) arguments.zeros(20).u32(64).u32(0);
  arguments.u32(kTransientProgram).u32(1).u32(0);
  feed(create.call(1, kRootUid).record());
  EXPECT_EQ(gateway_.counters().free, 1U);
  CompoundWriter created(1);
  XdrWriter& results = created.result(Op::kCreateSession).zeros(kSessionIdBytes).u32(1).u32(0);
  results.zeros(20).u32(8).u32(0).zeros(20).u32(4).u32(0);
  from_server(created.reply(1).record());
  port_.wait = seconds{1};
  for (std::uint32_t slot = 0; slot < 8; ++slot) feed(read4(slot).call(100 + slot, 1).record());
  EXPECT_EQ(gateway_.waiting(SessionId{}), 2U) << "a quarter of 8";
}

TEST_F(NfsSessionTest, TlsIsRefused) {
  const std::string probe = call_header(3, kNfsProgram, kNfsVersion3, 0, Flavor::kTls, "").record();
  feed(probe);
  EXPECT_EQ(to_server(), "");
  const auto denied = denied_reply(3, kAuthBadCredential);
  EXPECT_EQ(to_client(), std::string(reinterpret_cast<const char*>(denied.data()), denied.size()));
  EXPECT_NE(port_.notes.find("asks for TLS"), std::string::npos);
}

TEST_F(NfsSessionTest, ACallThatTheServerDoesNotAnswerGivesItsSlotUp) {
  feed(get_attributes(1) + get_attributes(2));
  perform();
  port_.time += kLate;
  session_->wake();
  ASSERT_EQ(port_.answers.size(), 1U);
  EXPECT_TRUE(port_.answers.contains(1)) << "the other one has not been forwarded";
  EXPECT_EQ(gateway_.counters().slots_given_up, 1U);
  from_server(success_header(1).u32(5).record());
  EXPECT_EQ(port_.answers.size(), 1U);
  EXPECT_EQ(gateway_.counters().replies_unmatched, 0U);
}

TEST_F(NfsSessionTest, ASilentServerKeepsSlotsFromOthersForASecond) {
  for (std::uint32_t xid = 1; xid <= 10; ++xid) feed(get_attributes(xid));
  for (int i = 0; i < 8; ++i) perform();
  const Instant began = port_.time;
  port_.time = began + kSilent - Nanoseconds{1};
  session_->wake();
  EXPECT_TRUE(port_.answers.empty());
  // Nobody is answered, which may be because these calls have all slots.
  port_.time = began + kSilent;
  session_->wake();
  EXPECT_EQ(port_.answers.size(), 2U);
  EXPECT_TRUE(port_.answers.contains(8)) << "the last ones";
  // Another client is.
  gateway_.heard(port_.time);
  port_.time += kSilent;
  session_->wake();
  EXPECT_EQ(port_.answers.size(), 8U - kSilentSlots);
  perform();
  EXPECT_TRUE(port_.answers.contains(9)) << "at once";
  EXPECT_EQ(port_.answers.at(9).error, ETIMEDOUT);
  from_server(success_header(5).u32(5).record());
  perform();
  EXPECT_FALSE(port_.answers.contains(10)) << "the server answers again";
  EXPECT_EQ(port_.notes, "");
}

TEST_F(NfsSessionTest, ASilentServerIsNamedOnce) {
  feed(get_attributes(1));
  perform();
  for (int i = 0; i < 25; ++i) {
    port_.time += seconds{1};
    session_->wake();
  }
  EXPECT_EQ(port_.notes, "server server has answered none of its 1 calls for 10 s\n");
  EXPECT_TRUE(port_.answers.empty()) << "one call keeps its slot for longer";
}

TEST_F(NfsSessionTest, AClientThatTheGatewayDoesNotReadIsNotDisconnected) {
  feed(std::string_view(get_attributes(1)).substr(0, 50));
  port_.memory = 0;
  port_.held = 1;
  port_.time += kStallMax;
  session_->wake();
  EXPECT_EQ(port_.hang_ups, 0);
  port_.held = 0;
}

TEST_F(NfsSessionTest, AClientThatStopsWithinAMessageIsDisconnected) {
  feed(std::string_view(get_attributes(1)).substr(0, 50));
  port_.time += kStallMax - std::chrono::milliseconds{1};
  session_->wake();
  EXPECT_EQ(port_.hang_ups, 0);
  port_.time += std::chrono::milliseconds{1};
  session_->wake();
  EXPECT_EQ(port_.hang_ups, 1);
  EXPECT_NE(port_.notes.find("stopped within a message"), std::string::npos);
}

TEST_F(NfsSessionTest, StopsBehindTheMessageThatArrives) {
  const std::string call = get_attributes(1);
  feed(std::string_view(call).substr(0, 50));
  EXPECT_FALSE(session_->stop());
  EXPECT_EQ(feed(std::string_view(call).substr(50)), Event::kEnd);
  EXPECT_EQ(queued_.size(), 1U) << "it is answered";
  EXPECT_TRUE(session_->stop());
}

TEST_F(NfsSessionTest, TheServerEndsTheConnection) {
  feed(get_attributes(1));
  perform();
  session_->server_ended("server has closed the connection");
  EXPECT_EQ(port_.hang_ups, 1);
  EXPECT_NE(port_.notes.find("1 calls unanswered"), std::string::npos);
  EXPECT_EQ(feed(get_attributes(2)), Event::kNeedBytes) << "nothing more is read";
  EXPECT_TRUE(queued_.empty());
}

TEST_F(NfsSessionTest, WhatIsNotRpcIsNamed) {
  EXPECT_EQ(feed("GET / HTTP/1.1\r\n\r\n"), Event::kBreak);
  EXPECT_NE(session_->problem(), "");
}

TEST_F(NfsSessionTest, ACallThatBreaksTheProtocolHasNoIdentity) {
  const std::string credential =
      XdrWriter().u32(1).opaque("host").u32(1000).u32(100).u32(17).zeros(17 * 4).text();
  const std::string call =
      call_header(1, kNfsProgram, kNfsVersion3, kGetAttr3, Flavor::kSys, credential)
          .opaque("handle")
          .record();
  feed(call);
  ASSERT_EQ(queued_.size(), 1U);
  EXPECT_EQ(queued_[0]->attributes.uid, kUnknownId);
  EXPECT_EQ(queued_[0]->attributes.job, JobId("10.0.0.1@tcp"));
  perform();
  EXPECT_EQ(to_server(), call);
}

TEST_F(NfsSessionTest, CallsOfAGssContextStayInOrder) {
  const std::string credential = XdrWriter().u32(1).u32(0).u32(1).u32(1).opaque("context").text();
  CompoundWriter get(1);
  get.sequence(0, 1).put_handle("handle");
  get.op(Op::kRead).zeros(16).u64(0).u32(4096);
  CompoundWriter close(1);
  close.sequence(0, 5).put_handle("handle");
  close.op(Op::kClose).u32(0).zeros(16);
  const auto call = [&](std::uint32_t xid, const CompoundWriter& compound) {
    XdrWriter writer =
        call_header(xid, kNfsProgram, kNfsVersion4, kCompoundProcedure, Flavor::kGss, credential);
    return writer.raw(compound.arguments().text()).record();
  };
  port_.wait = seconds{20};
  for (std::uint32_t xid = 0; xid < kGssParkedMax; ++xid) feed(call(xid, get));
  ASSERT_EQ(queued_.size(), kGssParkedMax) << "never answered by the gateway";
  EXPECT_EQ(queued_[0]->attributes.opcode, kUnknownId) << "one queue for all";
  EXPECT_TRUE(queued_[0]->attributes.job.text().starts_with("gss."));
  feed(call(1000, close));
  EXPECT_EQ(queued_.size(), kGssParkedMax + 1) << "it would overtake too many";
  perform();
  perform();
  feed(call(1001, close));
  EXPECT_EQ(performed_.size(), 3U) << "63 are parked";
}

// ---- warnings that are logged once for each client ----

CompoundWriter exchange_id(std::string_view owner) {
  CompoundWriter writer(1);
  writer.op(Op::kExchangeId).zeros(8).opaque(owner).u32(0).u32(0).u32(0);
  return writer;
}

std::string exchanged(std::uint32_t xid) {
  CompoundWriter writer(1);
  XdrWriter& result = writer.result(Op::kExchangeId).u64(7).u32(1).u32(0).u32(0);
  result.u64(0).opaque("server").opaque("scope").u32(0);
  return writer.reply(xid).record();
}

class Warned : public testing::Test {
 protected:
  Warned() : gateway_(serve::NfsOptions{}, {.address = {}, .size = 0, .text = "server"}) {}

  // Sends calls of one client, with a reply to each, and disconnects.
  std::string notes_of(std::string_view client, const std::vector<std::string>& calls,
                       const std::vector<std::string>& replies) {
    FakePort port;
    port.identity.nid = parse_nid(client).value();
    const auto session = begin_session(port, gateway_);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::span<const std::byte> in = std::as_bytes(std::span(calls[i]));
      IoRequest request;
      request.clear();
      if (session->next(in, request) == Event::kRequest) {
        request.id = i + 1;
        session->perform(request, {});
      }
      if (i < replies.size()) session->from_server(std::as_bytes(std::span(replies[i])));
    }
    session->closed();
    EXPECT_EQ(port.held, 0U);
    return port.notes;
  }

  Gateway gateway_;
};

TEST_F(Warned, TwoClientsWithOneOwner) {
  const std::vector<std::string> hello = {exchange_id("Linux NFSv4.1 node").call(1, 0).record(),
                                          read4(0).call(2, 1000).record()};
  EXPECT_EQ(notes_of("10.0.0.1@tcp", hello, {exchanged(1)}), "");
  EXPECT_EQ(notes_of("10.0.0.1@tcp", hello, {exchanged(1)}), "") << "its own reconnect";
  const std::string notes = notes_of("10.0.0.2@tcp", hello, {exchanged(1)});
  EXPECT_NE(notes.find("client owner of 10.0.0.1@tcp"), std::string::npos) << notes;
  EXPECT_EQ(notes_of("10.0.0.2@tcp", hello, {exchanged(1)}), "") << "once";
}

TEST_F(Warned, AClientThatLeavesWithoutASessionMountsTheServerDirectly) {
  const std::vector<std::string> only = {exchange_id("a").call(1, 0).record()};
  const std::string notes = notes_of("10.0.0.1@tcp", only, {exchanged(1)});
  EXPECT_NE(notes.find("bypass the gateway"), std::string::npos) << notes;
  EXPECT_EQ(notes_of("10.0.0.1@tcp", only, {exchanged(1)}), "") << "once";
  EXPECT_EQ(gateway_.counters().bypasses, 2U);
  EXPECT_EQ(notes_of("10.0.0.2@tcp", {exchange_id("b").call(1, 0).record()}, {}), "")
      << "it was not answered";
}

TEST_F(Warned, AClientWithASessionIsNotSuspected) {
  CompoundWriter create(1);
  XdrWriter& arguments = create.op(Op::kCreateSession).u64(1).u32(1).u32(0);
  for (int channel = 0; channel < 2; ++channel) arguments.zeros(20).u32(64).u32(0);
  arguments.u32(kTransientProgram).u32(1).u32(0);
  CompoundWriter created(1);
  XdrWriter& results = created.result(Op::kCreateSession).zeros(kSessionIdBytes).u32(1).u32(0);
  results.zeros(20).u32(8).u32(0).zeros(20).u32(4).u32(0);
  const std::string hello = exchange_id("a").call(1, 0).record();
  EXPECT_EQ(notes_of("10.0.0.1@tcp", {hello, create.call(2, 0).record()},
                     {exchanged(1), created.reply(2).record()}),
            "");
  EXPECT_EQ(notes_of("10.0.0.1@tcp", {hello}, {exchanged(1)}), "");
  EXPECT_EQ(gateway_.counters().bypasses, 0U);
}

TEST_F(Warned, OnceForLayoutsReferralsAndTls) {
  CompoundWriter get(1);
  get.sequence(0, 1).put_handle("handle");
  get.op(Op::kLayoutGet).zeros(56);
  CompoundWriter got(1);
  got.sequence_result(0, 1).result(Op::kPutFh);
  got.result(Op::kLayoutGet).u32(0).zeros(16).u32(0);
  CompoundWriter moved(1);
  moved.sequence_result(0, 1).result(Op::kPutFh, kMoved);
  const std::string probe = call_header(3, kNfsProgram, kNfsVersion3, 0, Flavor::kTls, "").record();
  const std::vector<std::string> calls = {get.call(1, 1000).record(), get.call(2, 1000).record(),
                                          probe};
  const std::vector<std::string> replies = {got.reply(1).record(), moved.reply(2, kMoved).record()};
  for (const std::string_view client : {"10.0.0.1@tcp", "10.0.0.2@tcp"}) {
    const std::string notes = notes_of(client, calls, replies);
    for (const char* const text : {"pNFS layouts", "another server", "asks for TLS"}) {
      EXPECT_NE(notes.find(text), std::string::npos) << notes;
    }
    EXPECT_EQ(notes_of(client, calls, replies), "");
  }
  EXPECT_EQ(gateway_.counters().layouts, 4U);
  EXPECT_EQ(gateway_.counters().tls_refused, 4U);
}

TEST(NfsSessionProperty, ForwardsAllThatItGetsWhateverTheOrder) {
  Rng rng(11);
  for (int round = 0; round < 8; ++round) {
    FakePort port;
    Gateway gateway(serve::NfsOptions{}, {.address = {}, .size = 0, .text = "server"});
    const auto session = begin_session(port, gateway);
    std::string calls;
    std::map<std::uint32_t, std::string> records;
    for (std::uint32_t xid = 0; xid < 60; ++xid) {
      records[xid] =
          rng.below(4) == 0 ? write_file(xid, rng.below(150'000) + 1) : get_attributes(xid);
      calls += records[xid];
    }
    std::vector<std::unique_ptr<IoRequest>> queued;
    std::string sent;
    std::size_t at = 0;
    std::uint64_t id = 0;
    while (at < calls.size() || !queued.empty()) {
      if (at < calls.size() && rng.below(3) > 0) {
        const std::string piece = calls.substr(at, rng.below(40'000) + 1);
        at += piece.size();
        std::span<const std::byte> in = std::as_bytes(std::span(piece));
        for (;;) {
          auto request = std::make_unique<IoRequest>();
          request->clear();
          const Event event = session->next(in, *request);
          if (event != Event::kRequest) break;
          request->id = ++id;
          queued.push_back(std::move(request));
        }
      } else if (!queued.empty()) {
        const std::size_t index = rng.below(queued.size());
        session->perform(*queued[index], {});
        queued.erase(queued.begin() + static_cast<std::ptrdiff_t>(index));
      }
      sent += taken(*session->to_server());
      session->transferred();
    }
    std::map<std::uint32_t, std::string> got;
    while (!sent.empty()) {
      const std::uint32_t length =
          load_be<std::uint32_t>(reinterpret_cast<const std::byte*>(sent.data())) & 0x7FFF'FFFF;
      const std::string record = sent.substr(0, 4 + length);
      got[load_be<std::uint32_t>(reinterpret_cast<const std::byte*>(record.data()) + 4)] = record;
      sent.erase(0, record.size());
    }
    ASSERT_TRUE(got == records) << round;
    session->closed();
    ASSERT_EQ(port.held, 0U);
  }
}

// ---- jobs of hosts ----

TEST_F(NfsSessionTest, ACallBelongsToTheJobOfItsHost) {
  feed(get_attributes(1));
  gateway_.set_jobs({{port_.identity.nid, JobId("4711")}});
  feed(get_attributes(2) + get_attributes(3, 1001));
  gateway_.set_jobs({{parse_nid("10.0.0.2@tcp").value(), JobId("4711")}});
  feed(get_attributes(4));
  EXPECT_EQ(queued_[0]->attributes.job, JobId("uid.1000"));
  EXPECT_EQ(queued_[1]->attributes.job, JobId("4711"));
  EXPECT_EQ(queued_[2]->attributes.job, JobId("4711")) << "whatever the user";
  EXPECT_EQ(queued_[2]->attributes.uid, 1001U);
  EXPECT_EQ(queued_[3]->attributes.job, JobId("uid.1000")) << "its job has ended";
}

// ---- TLS that the server offers ----

serve::NfsOptions with_tls() {
  serve::NfsOptions options;
  options.passes_tls = true;
  return options;
}

class TlsSessionTest : public NfsSessionTest {
 protected:
  TlsSessionTest() : NfsSessionTest(with_tls()) {}

  const std::string probe_ =
      call_header(3, kNfsProgram, kNfsVersion3, 0, Flavor::kTls, "").record();
  const std::string start_ =
      XdrWriter().u32(3).u32(1).u32(0).u32(0).opaque("STARTTLS").u32(0).record();
};

TEST_F(TlsSessionTest, BytesAfterStartTlsAreForwardedAndPaced) {
  feed(probe_);
  EXPECT_EQ(to_server(), probe_);
  from_server(start_ + "server hello");
  EXPECT_EQ(to_client(), start_ + "server hello");
  EXPECT_NE(port_.notes.find("uses TLS"), std::string::npos);
  const std::string bytes = "\x16\x03" + std::string(100'000, 't');
  EXPECT_EQ(feed(bytes), Event::kNoRoom) << "one piece waits at a time";
  ASSERT_EQ(queued_.size(), 1U);
  EXPECT_EQ(queued_[0]->attributes.job, port_.identity.job);
  EXPECT_EQ(queued_[0]->bytes, weir::Bytes{kWholeMax + 12}) << "with those of the server";
  EXPECT_FALSE(session_->is_settled());
  EXPECT_EQ(to_server(), "");
  perform();
  EXPECT_TRUE(port_.answers.contains(1));
  std::string sent = to_server();
  EXPECT_EQ(feed(std::string(left_)), Event::kNeedBytes);
  perform();
  sent += to_server();
  EXPECT_EQ(sent, bytes);
  from_server(std::string(50'000, 's'));
  EXPECT_EQ(to_client().size(), 50'000U);
  feed("x");
  EXPECT_EQ(queued_[0]->bytes, weir::Bytes{50'001});
}

TEST_F(TlsSessionTest, AServerWithoutTlsAnswersTheProbeItself) {
  feed(probe_);
  from_server(success_header(3).record());
  feed(get_attributes(4));
  EXPECT_EQ(queued_.size(), 1U);
  EXPECT_EQ(port_.notes, "");
}

TEST_F(TlsSessionTest, OnlyTheReplyToAProbeStartsTls) {
  feed(sys_call(3, kNfsVersion3, 0, 1000).record());
  from_server(start_);
  feed(get_attributes(4));
  EXPECT_EQ(queued_.at(0)->attributes.uid, 1000U);
}

TEST_F(TlsSessionTest, AClientThatDoesNotWaitForTlsIsDisconnected) {
  feed(probe_ + get_attributes(4));
  from_server(start_);
  EXPECT_EQ(port_.hang_ups, 1);
  EXPECT_NE(port_.notes.find("before TLS"), std::string::npos);
}

// ---- proxies in front of the gateway, and in front of the server ----

sockaddr_storage ip(const char* text, std::uint16_t port) {
  sockaddr_storage address{};
  address.ss_family = AF_INET;
  inet_pton(AF_INET, text, &reinterpret_cast<sockaddr_in&>(address).sin_addr);
  serve::set_port(address, port);
  return address;
}

std::string header_of(const serve::Ends& ends) {
  const std::vector<std::byte> bytes = serve::write_proxy_header(ends);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

serve::NfsOptions behind_a_proxy() {
  serve::NfsOptions options;
  options.accepts_proxy = NidList::parse("10.0.0.1@tcp").value();
  options.sends_proxy = true;
  options.source = serve::SourceMode::kReserved;
  return options;
}

// ---- exports ----

// A file of NFS-Ganesha on export 7.
const std::string kFileOf7(
    "\x43\0\0\x07\x04"
    "file",
    9);

std::string mount_call(std::uint32_t xid, std::string_view path) {
  return sys_call(xid, kMountVersion, kMountProcedure, kRootUid, kMountProgram)
      .opaque(path)
      .record();
}

std::string mount_reply(std::uint32_t xid, std::string_view handle) {
  return success_header(xid).u32(0).opaque(handle).u32(1).u32(1).record();
}

class ExportsOfASession : public NfsSessionTest {
 protected:
  explicit ExportsOfASession(const serve::NfsOptions& options = {}) : NfsSessionTest(options) {}

  void mount(std::string_view path, std::string_view handle) {
    feed(mount_call(++xid_, path));
    EXPECT_EQ(to_server(), mount_call(xid_, path));
    from_server(mount_reply(xid_, handle));
    EXPECT_EQ(to_client(), mount_reply(xid_, handle));
  }
  // Of a call on a file.
  std::string export_of(std::string_view handle) {
    feed(sys_call(++xid_, kNfsVersion3, kGetAttr3, 1000).opaque(handle).record());
    const std::string name(queued_.back()->attributes.export_name.text());
    CompoundWriter writer(1);
    writer.sequence(0, 1).put_handle(handle).op(Op::kGetAttr).u32(0);
    feed(writer.call(++xid_, 1000).record());
    EXPECT_EQ(queued_.back()->attributes.export_name.text(), name) << "version 4.1";
    return name;
  }

  std::uint32_t xid_ = 0;
};

TEST_F(ExportsOfASession, AreLearnedFromMnt) {
  EXPECT_EQ(export_of(kFileOf7), "nfs") << "the gateway's own name";
  mount("/home", kFileOf7);
  EXPECT_EQ(export_of(kFileOf7), "/home");
  EXPECT_EQ(export_of("another handle"), "nfs");
  EXPECT_NE(port_.notes.find("has mounted '/home': calls on its files belong to this export"),
            std::string::npos);
  port_.notes.clear();
  mount("/home", kFileOf7);
  EXPECT_EQ(port_.notes, "") << "once for each export";
}

TEST_F(ExportsOfASession, AreNotLearnedFromWhatTheServerRefuses) {
  feed(mount_call(1, "/home") + mount_call(2, "/home") + mount_call(3, "/home"));
  from_server(success_header(1).u32(13).record());
  from_server(success_header(2).u32(0).opaque(kFileOf7).u32(900).record());
  from_server(XdrWriter().u32(3).u32(1).u32(1).u32(1).u32(1).record());
  xid_ = 3;
  EXPECT_EQ(export_of(kFileOf7), "nfs");
}

TEST_F(ExportsOfASession, WithHandlesOfAnUnknownFormAreReportedOnce) {
  mount("/vol", "opaque");
  EXPECT_EQ(export_of("opaque"), "nfs");
  EXPECT_NE(port_.notes.find("have no known form"), std::string::npos);
  port_.notes.clear();
  mount("/vol2", "others");
  EXPECT_EQ(port_.notes, "");
}

TEST_F(ExportsOfASession, PathsAreKeptForAFewMountsOnly) {
  for (std::uint32_t xid = 1; xid <= 9; ++xid) feed(mount_call(xid, "/e" + std::to_string(xid)));
  from_server(mount_reply(9, kFileOf7));
  xid_ = 1000;
  EXPECT_EQ(export_of(kFileOf7), "nfs");
  from_server(mount_reply(8, kFileOf7));
  EXPECT_EQ(export_of(kFileOf7), "/e8");
}

class ConfiguredExports : public ExportsOfASession {
 protected:
  ConfiguredExports() : ExportsOfASession(options()) {}

  static serve::NfsOptions options() {
    serve::NfsOptions options;
    options.export_handles = {serve::parse_export_handle("home=43000007").value()};
    return options;
  }
};

TEST_F(ConfiguredExports, NeedNoMount) {
  EXPECT_EQ(export_of(kFileOf7), "home");
  EXPECT_EQ(export_of("another handle"), "nfs");
}

class ProxiedSessionTest : public NfsSessionTest {
 protected:
  using Step = serve::Session::Step;

  ProxiedSessionTest() : NfsSessionTest(behind_a_proxy()) {}

  // The rest of `text` is left in left_.
  Step negotiate(std::string_view text) {
    std::vector<std::byte> out;
    std::span<const std::byte> in = std::as_bytes(std::span(text.data(), text.size()));
    const Step step = session_->negotiate(in, out);
    left_.assign(text.substr(text.size() - in.size()));
    EXPECT_TRUE(out.empty());
    return step;
  }

  const serve::Ends ends_{ip("10.9.9.9", 777), ip("10.0.0.5", 2049)};
};

TEST_F(ProxiedSessionTest, TheHeaderNamesTheClientWhateverItsSplit) {
  const std::string text = header_of(ends_) + get_attributes(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    FakePort port;
    port.identity.nid = parse_nid("10.0.0.1@tcp").value();
    Gateway gateway(behind_a_proxy(), {.address = {}, .size = 0, .text = "server"});
    const auto session = begin_session(port, gateway);
    std::vector<std::byte> out;
    session->greet(out);
    EXPECT_EQ(port.connected_to, "");
    std::span<const std::byte> in = std::as_bytes(std::span(text.data(), at));
    Step step = session->negotiate(in, out);
    if (step == Step::kNeedBytes) {
      ASSERT_TRUE(in.empty());
      in = std::as_bytes(std::span(text.data() + at, text.size() - at));
      step = session->negotiate(in, out);
    } else {
      in = std::as_bytes(std::span(text)).last(in.size() + text.size() - at);
    }
    ASSERT_EQ(step, Step::kOpen) << at;
    EXPECT_EQ(in.size(), get_attributes(1).size());
    EXPECT_EQ(port.connected_to, "server");
    EXPECT_EQ(serve::port_of(port.source.client), 777);
    EXPECT_EQ(port.source.mode, serve::SourceMode::kReserved);
    IoRequest request;
    request.clear();
    ASSERT_EQ(session->next(in, request), Event::kRequest);
    EXPECT_EQ(print_nid(request.attributes.nid), "10.9.9.9@tcp");
    EXPECT_EQ(taken(*session->to_server()), header_of(ends_)) << "it precedes all calls";
    session->closed();
  }
}

TEST_F(ProxiedSessionTest, AProxyMayConnectForItself) {
  port_.own_ends = {ip("10.0.0.1", 500), ip("10.0.0.5", 2049)};
  EXPECT_EQ(negotiate(header_of({}) + "rest"), Step::kOpen);
  EXPECT_EQ(left_, "rest");
  EXPECT_EQ(print_nid(port_.identity.nid), "10.0.0.1@tcp");
  EXPECT_EQ(to_server(), header_of(port_.own_ends));
}

TEST_F(ProxiedSessionTest, WithoutAHeaderItIsDisconnected) {
  EXPECT_EQ(negotiate(get_attributes(1)), Step::kBreak);
  EXPECT_NE(session_->problem(), "");
  EXPECT_EQ(port_.connected_to, "");
}

TEST_F(ProxiedSessionTest, AHeaderThatDoesNotArriveEndsTheConnection) {
  EXPECT_EQ(port_.wakes_at, port_.time + kHeaderMax);
  EXPECT_EQ(negotiate(header_of(ends_).substr(0, 20)), Step::kNeedBytes);
  session_->wake();
  EXPECT_EQ(port_.hang_ups, 1);
  EXPECT_NE(port_.notes.find("PROXY header"), std::string::npos);
}

TEST_F(ProxiedSessionTest, TheClientsAddressIsThatOfTheHeaderInWarnings) {
  ASSERT_EQ(negotiate(header_of(ends_)), Step::kOpen);
  EXPECT_EQ(port_.wakes_at, kNever);
  EXPECT_TRUE(gateway_.mark(Gateway::Mark::kTls, serve::nid_of(ends_.client)));
  feed(call_header(1, kNfsProgram, kNfsVersion3, 0, Flavor::kTls, "").record());
  EXPECT_EQ(port_.notes, "") << "it has been warned already";
}

TEST_F(NfsSessionTest, AHeaderOfAnyOtherClientIsRefused) {
  EXPECT_EQ(feed(header_of({ip("10.9.9.9", 1), ip("10.0.0.5", 2049)})), Event::kBreak);
  EXPECT_EQ(session_->problem(), describe(BreakReason::kProxyHeader));
}

}  // namespace
}  // namespace weir::nfs
