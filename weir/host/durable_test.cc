// SPDX-License-Identifier: Apache-2.0
#include "weir/host/durable.h"

#include <gtest/gtest.h>

namespace weir::host {
namespace {

TEST(Durable, ThePathSaysWhichDirectory) {
  EXPECT_EQ(directory_of("state"), ".");
  EXPECT_EQ(directory_of("/state"), "/");
  EXPECT_EQ(directory_of("/var/lib/weir/state"), "/var/lib/weir");
}

TEST(Durable, ADirectoryThatCannotBeSyncedIsNamed) {
  EXPECT_TRUE(sync_directory_of(testing::TempDir() + "file"));
  const auto missing = sync_directory_of("/nonexistent/file");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, std::errc::no_such_file_or_directory);
  EXPECT_NE(missing.error().message().find("'/nonexistent'"), std::string::npos);
}

}  // namespace
}  // namespace weir::host
