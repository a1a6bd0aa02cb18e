// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/store_errors.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

TEST(SyncErrors, EverySessionIsToldOnce) {
  SyncErrors errors;
  SyncErrors::Mark a = errors.begin();
  SyncErrors::Mark b = errors.begin();
  EXPECT_EQ(errors.tell(a), 0);
  errors.failed(EIO);
  EXPECT_EQ(errors.tell(a), EIO);
  EXPECT_EQ(errors.tell(a), 0);
  EXPECT_EQ(errors.tell(b), EIO) << "however late it asks";
  EXPECT_EQ(errors.tell(b), 0);
}

TEST(SyncErrors, ASessionThatBeginsLaterIsToldOnlyWhatNobodyWasTold) {
  SyncErrors errors;
  errors.failed(EIO);  // and the session that got the error has ended
  SyncErrors::Mark late = errors.begin();
  EXPECT_EQ(errors.tell(late), EIO);
  SyncErrors::Mark later = errors.begin();
  EXPECT_EQ(errors.tell(later), 0);
}

TEST(SyncErrors, AnotherFailureIsToldAgain) {
  SyncErrors errors;
  SyncErrors::Mark a = errors.begin();
  errors.failed(EIO);
  EXPECT_EQ(errors.tell(a), EIO);
  errors.failed(ENOSPC);
  errors.failed(EDQUOT);
  EXPECT_EQ(errors.tell(a), EDQUOT) << "the last one";
  EXPECT_EQ(errors.tell(a), 0);
  EXPECT_EQ(errors.count(), 3U);
}

}  // namespace
}  // namespace weir::serve
