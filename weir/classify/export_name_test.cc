// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/export_name.h"

#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(ExportName, IsTheNameUnlessThatIsLong) {
  EXPECT_EQ(export_name("/home").text(), "/home");
  EXPECT_EQ(export_name("").text(), "");
  EXPECT_EQ(export_name(std::string(31, 'x')).text(), std::string(31, 'x'));
}

TEST(ExportName, OfALongNameHasAChecksumAndItsEnd) {
  const ExportName name = export_name("/pool/department/projects/alpha");
  EXPECT_EQ(name.text(), "/pool/department/projects/alpha") << "31 bytes";
  const ExportName longer = export_name("/pool/department/projects/alpha2");
  EXPECT_EQ(longer.text().size(), 31U);
  EXPECT_EQ(longer.text().substr(8), "~rtment/projects/alpha2");
  EXPECT_NE(export_name("/pool/other/department/projects/alpha2"), longer);
  EXPECT_EQ(export_name("/pool/department/projects/alpha2"), longer);
}

}  // namespace
}  // namespace weir
