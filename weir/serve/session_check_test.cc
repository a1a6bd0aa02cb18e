// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/session_check.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

class SessionCheck : public testing::Test {
 protected:
  SessionCheck() {
    facts_.size = 1U << 20;
    facts_.blocks = {512, 4096, 1U << 16};
    opened_.facts = &facts_;
  }

  std::string fault(StoreCommand command, std::uint64_t offset, std::uint32_t length) {
    IoRequest request;
    request.opened = &opened_;
    request.command = command;
    request.offset = offset;
    request.length = length;
    return request_fault(request);
  }

  ExportFacts facts_;
  OpenedExport opened_;
};

TEST_F(SessionCheck, WhatLiesInTheExportIsTaken) {
  EXPECT_EQ(fault(StoreCommand::kRead, 0, 512), "");
  EXPECT_EQ(fault(StoreCommand::kWrite, (1U << 20) - 65536, 65536), "");
  EXPECT_EQ(fault(StoreCommand::kFlush, 0, 0), "");
  EXPECT_EQ(fault(StoreCommand::kZero, 0, 1U << 20), "") << "has no payload";
  EXPECT_EQ(fault(StoreCommand::kDiscard, 1, 3), "") << "is advice";
}

TEST_F(SessionCheck, WhatLiesOutsideOfItIsNot) {
  EXPECT_EQ(fault(StoreCommand::kRead, 1U << 20, 512),
            "asked for 512 bytes at offset 1048576, of an export of 1048576 bytes");
  EXPECT_NE(fault(StoreCommand::kRead, UINT64_MAX - 511, 512), "") << "no sum that wraps";
  EXPECT_NE(fault(StoreCommand::kDiscard, 0, (1U << 20) + 512), "");
}

TEST_F(SessionCheck, NorIsMoreThanARequestMayHaveOrNothing) {
  EXPECT_EQ(fault(StoreCommand::kRead, 0, 131072),
            "asked for 131072 bytes at offset 0, more than the maximum of 65536");
  EXPECT_NE(fault(StoreCommand::kWrite, 0, 131072), "");
  EXPECT_NE(fault(StoreCommand::kRead, 0, 0), "");
  EXPECT_NE(fault(StoreCommand::kRead, 1, 512), "") << "within two blocks";
}

TEST_F(SessionCheck, AReadOnlyExportIsNotChanged) {
  facts_.is_read_only = true;
  for (const auto command : {StoreCommand::kWrite, StoreCommand::kZero, StoreCommand::kDiscard}) {
    EXPECT_EQ(fault(command, 0, 512),
              "asked to change 512 bytes at offset 0 of a read-only export");
  }
  EXPECT_EQ(fault(StoreCommand::kRead, 0, 512), "");
}

TEST_F(SessionCheck, AnExportMustHaveBeenOpenedAndARoomHasABound) {
  IoRequest request;
  EXPECT_NE(request_fault(request), "");
  OpenedExport never;
  request.opened = &never;
  EXPECT_NE(request_fault(request), "");
  request.opened = &opened_;
  request.is_own = true;
  request.reply_room = IoRequest::kReplyRoomMax;
  EXPECT_EQ(request_fault(request), "");
  ++request.reply_room;
  EXPECT_NE(request_fault(request), "");
}

TEST_F(SessionCheck, AReplyHasBytesAndAHeadThatFits) {
  IoRequest request;
  EXPECT_EQ(reply_fault(request), "made an empty reply");
  request.head_size = IoRequest::kHeadMax;
  EXPECT_EQ(reply_fault(request), "");
  ++request.head_size;
  EXPECT_EQ(reply_fault(request), "made a reply header of 65 bytes");
}

}  // namespace
}  // namespace weir::serve
