// SPDX-License-Identifier: Apache-2.0
//
// Conversations of real clients with a real server, as record.py wrote them down, read by the
// codec: every call and every reply is understood to its last byte, every reply belongs to a call,
// no byte is lost, and the bytes that files have are those that the client wrote and read. Cut into
// pieces of any size, a conversation gives the same calls.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/big_endian.h"
#include "weir/nfs/codec/answers.h"
#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/callback.h"
#include "weir/nfs/codec/mount.h"
#include "weir/nfs/codec/record.h"

namespace weir::nfs {
namespace {

// Joins the messages of one direction of one connection.
class Joiner {
 public:
  void feed(Bytes in, std::vector<std::vector<std::byte>>& messages) {
    for (;;) {
      const RecordEvent event = reader_.next(in);
      if (event.kind == RecordEvent::Kind::kNeedBytes) return;
      ASSERT_NE(event.kind, RecordEvent::Kind::kBreak) << describe(event.reason);
      joined_.insert(joined_.end(), event.bytes.begin(), event.bytes.end());
      if (!event.is_last) continue;
      messages.push_back(std::move(joined_));
      joined_.clear();
    }
  }

  bool is_inside() const { return reader_.is_inside(); }

 private:
  RecordReader reader_;
  std::vector<std::byte> joined_;
};

// What a conversation comes to.
struct Sums {
  std::map<std::string, int> operations;  // how often each was called
  std::map<std::uint32_t, std::uint64_t> bytes_of_uid;
  std::uint64_t sent = 0;      // by WRITE
  std::uint64_t returned = 0;  // by READ
  int calls = 0;
  int replies = 0;
  int free_calls = 0;
  int exempt_calls = 0;
  int repeats = 0;  // of an xid that is in use
  std::set<std::string> exports;
  std::uint32_t slots = 0;
  std::uint32_t lease_seconds = 0;

  bool operator==(const Sums&) const = default;
};

class Conversation {
 public:
  void hear(int connection, bool from_client, Bytes piece) {
    std::vector<std::vector<std::byte>> messages;
    joiners_[{connection, from_client}].feed(piece, messages);
    for (const auto& message : messages) {
      const auto type = message_type(message);
      ASSERT_TRUE(type);
      if (from_client) {
        ASSERT_EQ(*type, MessageType::kCall);
        hear_call(connection, message);
      } else {
        ASSERT_EQ(*type, MessageType::kReply);
        hear_reply(connection, message);
      }
    }
  }

  void finish() {
    for (const auto& [key, joiner] : joiners_) EXPECT_FALSE(joiner.is_inside());
  }

  const Sums& sums() const { return sums_; }

 private:
  void hear_call(int connection, const std::vector<std::byte>& message) {
    const Call call = read_call(whole(message));
    EXPECT_EQ(call.header.defect, Defect::kNone) << describe(call.header.defect);
    ++sums_.calls;
    if (call.urgency == Urgency::kFree) ++sums_.free_calls;
    if (call.urgency == Urgency::kExempt) ++sums_.exempt_calls;
    if (call.v3) {
      EXPECT_EQ(call.v3->end, XdrState::kGood) << call.procedure->name;
      ++sums_.operations[std::string(call.procedure->name)];
      sums_.sent += call.v3->sent;
    } else if (call.compound) {
      hear_compound(*call.compound);
    } else if (call.header.program == kNfsProgram) {
      EXPECT_EQ(call.protocol, Protocol::kNull);
      ++sums_.operations["NULL"];
    }
    if (is_mount(call.header)) {
      const auto path = mount_path(*open_arguments(whole(message), call.header));
      ASSERT_TRUE(path);
      sums_.exports.insert(std::string(*path).substr(path->rfind('/')));
    }
    const auto key = std::pair(connection, call.header.xid);
    if (pending_.contains(key)) ++sums_.repeats;
    const bool has_uid = call.header.credential.sys.has_value();
    pending_[key] = {pending_of(call), is_mount(call.header),
                     has_uid ? call.header.credential.sys->uid : 0};
  }

  void hear_compound(const CompoundCall& call) {
    EXPECT_EQ(call.end, WalkEnd::kEnd) << describe(call.end);
    EXPECT_EQ(call.walked, call.operation_count);
    sums_.sent += call.sent;
    for (std::uint32_t number = 0; number < kOperationsEnd; ++number) {
      if (call.holds.test(number)) ++sums_.operations[std::string(find_operation(number)->name)];
    }
  }

  void hear_reply(int connection, const std::vector<std::byte>& message) {
    const std::uint32_t xid = load_be<std::uint32_t>(message.data());
    const auto found = pending_.find({connection, xid});
    ASSERT_NE(found, pending_.end()) << "a reply to a call that nobody made";
    ++sums_.replies;
    const auto& [pending, mounts, uid] = found->second;
    const Reply reply = read_reply(whole(message), pending);
    EXPECT_TRUE(reply.header.succeeded());
    if (mounts) {
      const auto results = open_results(whole(message), reply.header, GssService::kNone);
      EXPECT_EQ(read_mount_reply(*results).end, XdrState::kGood);
    }
    if (reply.v3) {
      EXPECT_EQ(reply.v3->end, XdrState::kGood) << pending.procedure;
      if (pending.procedure == static_cast<std::uint32_t>(Proc3::kRead)) {
        sums_.returned += reply.v3->returned;
      }
    }
    if (reply.compound) hear_results(*reply.compound, message, pending);
    sums_.bytes_of_uid[uid] += reply.moved.bytes;
    pending_.erase(found);
  }

  void hear_results(const CompoundReply& reply, const std::vector<std::byte>& message,
                    const PendingCall& pending) {
    EXPECT_EQ(reply.end, WalkEnd::kEnd) << describe(reply.end) << " " << reply.last_operation;
    EXPECT_EQ(reply.walked, reply.result_count);
    if (!reply.has(Op::kReadDir)) sums_.returned += reply.returned;
    if (reply.session) sums_.slots = reply.session->slots;
    if (reply.lease_seconds) sums_.lease_seconds = *reply.lease_seconds;
    // A server that has seen all operations leaves nothing to mend.
    std::array<std::byte, kAnswerMax> buffer;
    EXPECT_FALSE(mend_reply(buffer, whole(message), pending));
  }

  struct Waiting {
    PendingCall pending;
    bool mounts = false;
    std::uint32_t uid = 0;
  };

  std::map<std::pair<int, bool>, Joiner> joiners_;
  std::map<std::pair<int, std::uint32_t>, Waiting> pending_;
  Sums sums_;
};

// Reads a file of record.py; pieces longer than `most` are cut.
Sums read_file(const std::string& name, std::size_t most = SIZE_MAX) {
  std::ifstream file(std::string(WEIR_RECORDED) + "/" + name + ".rpc", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(text.empty()) << name;
  Bytes rest = std::as_bytes(std::span(text));
  Conversation conversation;
  constexpr std::size_t kHead = 6;
  while (rest.size() > kHead) {
    const int connection = static_cast<int>(rest[0]);
    const bool from_client = rest[1] == std::byte{'>'};
    const std::size_t size = load_be<std::uint32_t>(rest.data() + 2);
    EXPECT_LE(size, rest.size() - kHead);
    Bytes piece = rest.subspan(kHead, size);
    rest = rest.subspan(kHead + size);
    while (!piece.empty()) {
      const Bytes first = piece.first(std::min(most, piece.size()));
      piece = piece.subspan(first.size());
      conversation.hear(connection, from_client, first);
    }
  }
  EXPECT_TRUE(rest.empty());
  conversation.finish();
  return conversation.sums();
}

const char* const kNames[] = {"libnfs_mount", "libnfs_v3", "libnfs_v40", "linux_mount",
                              "linux_v3",     "linux_v40", "linux_v41",  "linux_v42"};

TEST(Recorded, EveryCallAndReplyIsUnderstood) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const Sums sums = read_file(name);
    EXPECT_GT(sums.calls, 0);
    EXPECT_EQ(sums.calls, sums.replies);
    EXPECT_EQ(sums.repeats, 0);
  }
}

// libnfs writes and reads a file of 5,100 bytes. The Linux guest writes "hello\n" and 1,500 bytes,
// which it reads after it has mounted again; and it allocates 900 bytes, which before version 4.2
// is writing them.
TEST(Recorded, BytesAreThoseOfTheFiles) {
  struct Expected {
    const char* name;
    std::uint64_t sent;
    std::uint64_t returned;
  };
  constexpr Expected kExpected[] = {
      {"libnfs_v3", 5100, 5100}, {"libnfs_v40", 0, 0},      {"linux_v3", 2406, 1500},
      {"linux_v40", 2406, 1500}, {"linux_v41", 2406, 1500}, {"linux_v42", 1506, 1500},
  };
  for (const Expected& expected : kExpected) {
    const Sums sums = read_file(expected.name);
    EXPECT_EQ(sums.sent, expected.sent) << expected.name;
    EXPECT_EQ(sums.returned, expected.returned) << expected.name;
  }
}

TEST(Recorded, LearnsExportsSlotsAndLeases) {
  EXPECT_TRUE(read_file("libnfs_mount").exports.contains("/export"));
  EXPECT_TRUE(read_file("linux_mount").exports.contains("/export"));
  for (const char* name : {"linux_v41", "linux_v42"}) {
    EXPECT_EQ(read_file(name).slots, 64U) << name;
    EXPECT_EQ(read_file(name).lease_seconds, 60U) << name;
  }
}

TEST(Recorded, TellsWhatDoesNotWait) {
  Sums sums = read_file("linux_v41");
  // At least: 2 pings, and what opens and closes two sessions.
  EXPECT_GE(sums.free_calls, 2 + 4 + 2 + 2 + 2 + 2);
  EXPECT_EQ(sums.operations["EXCHANGE_ID"], 4);
  EXPECT_EQ(sums.operations["CREATE_SESSION"], 2);
  EXPECT_EQ(sums.exempt_calls, sums.operations["CLOSE"]);
  EXPECT_GT(sums.exempt_calls, 0);
  EXPECT_EQ(sums.operations["WRITE"], 3);
  EXPECT_EQ(read_file("linux_v42").operations["ALLOCATE"], 1);
}

TEST(Recorded, AnySplitGivesTheSameCalls) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const Sums sums = read_file(name);
    for (const std::size_t most : {1U, 4U, 7U, 61U}) EXPECT_EQ(read_file(name, most), sums);
  }
}

}  // namespace
}  // namespace weir::nfs
