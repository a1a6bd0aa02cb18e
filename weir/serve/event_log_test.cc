// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/event_log.h"

#include <chrono>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

using std::chrono::milliseconds;
using Kind = EventLog::Kind;

TEST(EventLog, WritesOneLineASecondOfEachKind) {
  EventLog log;
  const Instant start = instant_at(0);
  EXPECT_EQ(log.line(Kind::kBreak, "a", start), "a");
  EXPECT_EQ(log.line(Kind::kClaim, "b", start), "b");
  EXPECT_EQ(log.line(Kind::kBreak, "c", start + milliseconds{1}), "");
  EXPECT_EQ(log.line(Kind::kBreak, "d", start + milliseconds{999}), "");
  EXPECT_EQ(log.line(Kind::kBreak, "e", start + milliseconds{1000}), "e (and 2 more like it)");
  EXPECT_EQ(log.line(Kind::kBreak, "f", start + milliseconds{2000}), "f");
}

}  // namespace
}  // namespace weir::serve
