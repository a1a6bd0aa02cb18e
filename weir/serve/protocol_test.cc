// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/protocol.h"

#include <memory>
#include <system_error>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

ProtocolKind named(const char* name) {
  return {.name = name, .help = "for a test", .begin = [](SessionPort&) {
            return std::unique_ptr<Session>();
          }};
}

// One test, because protocols cannot be removed.
TEST(Protocols, ANameIsTakenOnceAndAnUnknownOneIsToldTheNearest) {
  const auto none = find_protocol("");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("this program has no protocols"), std::string::npos);

  ASSERT_TRUE(add_protocol(named("first"), Standard::kYes));
  ASSERT_TRUE(add_protocol(named("second")));
  EXPECT_EQ((*find_protocol(""))->name, "first") << "the standard one";
  EXPECT_EQ((*find_protocol("second"))->name, "second");

  EXPECT_EQ(add_protocol(named("second")).error().code, std::errc::file_exists);
  for (const char* name : {"", "UPPER", "with space", "plus+", "sixteenletters00"}) {
    EXPECT_EQ(add_protocol(named(name)).error().code, std::errc::invalid_argument) << name;
  }
  EXPECT_EQ(add_protocol({.name = "third", .help = "", .begin = nullptr}).error().code,
            std::errc::invalid_argument);
  EXPECT_EQ(protocol_kinds().size(), 2U) << "nothing has changed";

  const auto unknown = find_protocol("secnd");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message(),
            "'secnd': no such protocol; did you mean second? available: first, second");
}

}  // namespace
}  // namespace weir::serve
