// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/record.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir::nfs {
namespace {

std::string mark(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
  return text;
}

constexpr std::uint32_t kLast = 0x80000000;

std::string fragment(std::string_view bytes, bool is_last) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  return mark(is_last ? size | kLast : size).append(bytes);
}

// The messages of a stream, as read in pieces.
struct Heard {
  std::vector<std::string> messages;
  std::string unfinished;
  std::string problem;

  bool operator==(const Heard&) const = default;
};

class Listener {
 public:
  explicit Listener(std::uint32_t record_max = kRecordMaxDefault) : reader_(record_max) {}

  bool feed(std::string_view bytes) {
    std::span<const std::byte> in = std::as_bytes(std::span(bytes));
    for (;;) {
      const RecordEvent event = reader_.next(in);
      if (event.kind == RecordEvent::Kind::kNeedBytes) return in.empty();
      if (event.kind == RecordEvent::Kind::kBreak) {
        heard_.problem = describe(event.reason);
        return false;
      }
      EXPECT_EQ(event.is_first, heard_.unfinished.empty());
      EXPECT_TRUE(event.is_last || !event.bytes.empty());
      heard_.unfinished.append(reinterpret_cast<const char*>(event.bytes.data()),
                               event.bytes.size());
      EXPECT_GE(reader_.message_length_max(), heard_.unfinished.size());
      if (!event.is_last) continue;
      EXPECT_EQ(reader_.message_length(), heard_.unfinished.size());
      EXPECT_FALSE(reader_.is_inside());
      heard_.messages.push_back(std::move(heard_.unfinished));
      heard_.unfinished.clear();
    }
  }

  const Heard& heard() const { return heard_; }

 private:
  RecordReader reader_;
  Heard heard_;
};

Heard hear(std::string_view stream, std::size_t piece = std::string_view::npos) {
  Listener listener;
  while (!stream.empty()) {
    const std::string_view first = stream.substr(0, std::min(piece, stream.size()));
    stream.remove_prefix(first.size());
    if (!listener.feed(first)) break;
  }
  return listener.heard();
}

TEST(RecordReader, JoinsFragments) {
  EXPECT_EQ(hear(fragment("abcdefgh", true)).messages, (std::vector<std::string>{"abcdefgh"}));
  EXPECT_EQ(hear(fragment("abc", false) + fragment("d", false) + fragment("efgh", true) +
                 fragment("xy", true))
                .messages,
            (std::vector<std::string>{"abcdefgh", "xy"}));
}

TEST(RecordReader, FragmentsOfNoBytesAreLegal) {
  EXPECT_EQ(hear(fragment("", false) + fragment("ab", false) + fragment("", false) +
                 fragment("", true) + fragment("", true))
                .messages,
            (std::vector<std::string>{"ab", ""}));
}

TEST(RecordReader, GivesAWholeMessageInOnePiece) {
  const std::string stream = fragment("abcdefgh", true) + fragment("ijkl", true);
  std::span<const std::byte> in = std::as_bytes(std::span(stream));
  RecordReader reader;
  const RecordEvent event = reader.next(in);
  EXPECT_TRUE(event.is_first && event.is_last);
  EXPECT_EQ(event.bytes.data(), reinterpret_cast<const std::byte*>(stream.data()) + 4);  // no copy
  EXPECT_EQ(event.bytes.size(), 8U);
}

TEST(RecordReader, KnowsTheLengthWithTheLastMark) {
  const std::string stream = fragment("abc", false) + mark(kLast | 100) + "d";
  std::span<const std::byte> in = std::as_bytes(std::span(stream));
  RecordReader reader(1000);
  EXPECT_EQ(reader.next(in).bytes.size(), 3U);
  EXPECT_EQ(reader.message_length(), std::nullopt);
  EXPECT_EQ(reader.message_length_max(), 1000U);
  EXPECT_EQ(reader.next(in).bytes.size(), 1U);
  EXPECT_EQ(reader.message_length(), 103U);
  EXPECT_TRUE(reader.is_inside());
}

TEST(RecordReader, ARecordMayBeAsLongAsTheMaximum) {
  Listener exactly(10);
  EXPECT_TRUE(exactly.feed(fragment("12345", false) + fragment("67890", true)));
  EXPECT_EQ(exactly.heard().messages.size(), 1U);
  Listener more(10);
  EXPECT_FALSE(more.feed(fragment("12345", false) + fragment("678901", true)));
  EXPECT_EQ(more.heard().problem, "a record longer than the maximum");
  EXPECT_EQ(hear(mark(0xFFFFFFFF)).problem, "a record longer than the maximum");
}

TEST(RecordReader, TheNumberOfFragmentsIsBounded) {
  std::string most;
  for (std::uint32_t i = 0; i + 1 < kFragmentsMax; ++i) most += fragment("", false);
  EXPECT_EQ(hear(most + fragment("x", true)).messages.size(), 1U);
  EXPECT_EQ(hear(most + fragment("", false) + fragment("x", true)).problem,
            "a record in too many fragments");
}

TEST(RecordReader, TheFragmentsOfTheNextRecordAreCountedAnew) {
  std::string stream;
  for (int record = 0; record < 3; ++record) {
    for (std::uint32_t i = 0; i < kFragmentsMax / 2; ++i) stream += fragment("", false);
    stream += fragment("x", true);
  }
  EXPECT_EQ(hear(stream).messages.size(), 3U);
}

TEST(RecordReader, NamesStreamsThatAreNotRpc) {
  EXPECT_EQ(hear("\x16\x03\x01\x02...").problem.substr(0, 21), "TLS without the probe");
  EXPECT_EQ(hear("\r\n\r\n").problem.substr(0, 23), "a PROXY protocol header");
  for (const char* text : {"GET / HTTP/1.1", "PROXY TCP4", "SSH-2.0-x"}) {
    EXPECT_EQ(hear(text).problem.substr(0, 19), "text instead of RPC") << text;
  }
  // Later in a stream they are only lengths above the maximum.
  EXPECT_EQ(hear(fragment("x", true) + "GET / HTTP/1.1").problem,
            "a record longer than the maximum");
}

TEST(RecordReader, EveryReasonHasItsText) {
  for (std::size_t i = 0; i < kBreakReasons; ++i) {
    EXPECT_FALSE(describe(static_cast<BreakReason>(i)).empty());
  }
}

TEST(RecordReader, AMarkTellsOneFragment) {
  const auto bytes = record_mark(0x010203);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 4),
            std::string("\x80\x01\x02\x03", 4));
}

RC_GTEST_PROP(RecordProperty, AnySplitGivesTheSameMessages, ()) {
  std::string stream;
  std::vector<std::string> sent;
  const int records = *rc::gen::inRange(1, 6);
  for (int record = 0; record < records; ++record) {
    std::string message;
    const int fragments = *rc::gen::inRange(1, 5);
    for (int i = 0; i < fragments; ++i) {
      const auto size = static_cast<std::size_t>(*rc::gen::inRange(0, 40));
      const std::string part(size, static_cast<char>('a' + i));
      message += part;
      stream += fragment(part, i + 1 == fragments);
    }
    sent.push_back(message);
  }
  RC_ASSERT(hear(stream).messages == sent);
  for (const std::size_t piece : {1U, 2U, 3U, 4U, 5U, 7U, 13U}) {
    RC_ASSERT(hear(stream, piece) == hear(stream));
  }
  const auto cut =
      static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(stream.size()) + 1));
  Listener listener;
  listener.feed(std::string_view(stream).substr(0, cut));
  listener.feed(std::string_view(stream).substr(cut));
  RC_ASSERT(listener.heard() == hear(stream));
}

}  // namespace
}  // namespace weir::nfs
