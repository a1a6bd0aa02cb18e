// SPDX-License-Identifier: Apache-2.0
#include "weir/base/operation_kind.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(OperationKind, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kOperationKinds; ++i) {
    names.emplace(operation_name(static_cast<OperationKind>(i)));
  }
  EXPECT_EQ(names.size(), kOperationKinds);
  EXPECT_EQ(operation_name(OperationKind::kMetadataChange), "metadata change");
}

}  // namespace
}  // namespace weir
