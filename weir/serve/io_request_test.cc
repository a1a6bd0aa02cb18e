// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/io_request.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

TEST(IoRequest, ALineNamesExportCommandOffsetAndErrno) {
  IoRequest write;
  write.command = StoreCommand::kWrite;
  write.offset = 8192;
  write.length = 4096;
  EXPECT_EQ(describe_store_error("a", write, EIO),
            "export 'a': write of 4096 bytes at offset 8192: Input/output error (EIO)");
  IoRequest flush;
  flush.command = StoreCommand::kFlush;
  EXPECT_EQ(describe_store_error("a", flush, ENOSPC),
            "export 'a': flush: No space left on device (ENOSPC)");
}

TEST(IoRequest, SuccessOfAFlushAndOfADurableWriteMeansThatDataIsDurable) {
  IoRequest request;
  EXPECT_FALSE(makes_durable(request));
  request.flags = kDurable;
  EXPECT_TRUE(makes_durable(request));
  request.is_own = true;
  EXPECT_FALSE(makes_durable(request)) << "its flags are the session's";
  request.clear();
  request.command = StoreCommand::kFlush;
  EXPECT_TRUE(makes_durable(request));
}

}  // namespace
}  // namespace weir::serve
