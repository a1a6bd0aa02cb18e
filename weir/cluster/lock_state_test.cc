// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_state.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::cluster {
namespace {

TEST(LockState, AnEmptyFileIsAFirstStart) {
  EXPECT_EQ(*parse_lock_state(""), (LockState{.incarnation = 0, .is_clean = true}));
}

TEST(LockState, ReadsWhatItWrote) {
  for (const LockState state :
       {LockState{1, false}, LockState{7, true}, LockState{1048575, false}}) {
    const auto read = parse_lock_state(print_lock_state(state));
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, state);
  }
}

TEST(LockState, RefusesWhatItCannotHaveWritten) {
  for (const std::string text :
       {"7", "incarnation 7\n", "incarnation 0\nclean 1\n", "incarnation 07\nclean 1\n",
        "incarnation 1048576\nclean 1\n", "incarnation 7\nclean 2\n", "incarnation 7\nclean 1\n ",
        "incarnation -1\nclean 1\n"}) {
    EXPECT_FALSE(parse_lock_state(text)) << text;
  }
}

}  // namespace
}  // namespace weir::cluster
