// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/form.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {
namespace {

struct Walked {
  XdrState state = XdrState::kGood;
  std::size_t bytes = 0;
  std::uint32_t choice = 0;

  bool operator==(const Walked&) const = default;
};

Walked walked(std::string_view form, const XdrWriter& value) {
  XdrReader reader(whole(value.bytes()));
  const std::uint32_t choice = walk(reader, form);
  return {reader.state(), reader.position(), choice};
}

TEST(Form, StepsOverNumbersOpaquesAndArrays) {
  EXPECT_EQ(walked("", XdrWriter()), (Walked{XdrState::kGood, 0, 0}));
  EXPECT_EQ(walked("12 8", XdrWriter().zeros(24)), (Walked{XdrState::kGood, 20, 0}));
  EXPECT_EQ(walked("oo", XdrWriter().opaque("abc").opaque("")), (Walked{XdrState::kGood, 12, 0}));
  EXPECT_EQ(walked("[4]", XdrWriter().u32(2).zeros(8)), (Walked{XdrState::kGood, 12, 0}));
  EXPECT_EQ(walked("[o4]", XdrWriter().u32(2).opaque("a").u32(0).opaque("bcdef").u32(0)),
            (Walked{XdrState::kGood, 4 + 12 + 16, 0}));
}

TEST(Form, StepsOverLists) {
  EXPECT_EQ(walked("{8o}4", XdrWriter().u32(0).u32(1)), (Walked{XdrState::kGood, 8, 0}));
  XdrWriter two;
  two.u32(1).u64(7).opaque("a").u32(1).u64(8).opaque("b").u32(0).u32(1);
  EXPECT_EQ(walked("{8o}4", two), (Walked{XdrState::kGood, two.text().size(), 0}));
  EXPECT_EQ(walked("{8o}4", XdrWriter().u32(2).zeros(40)).state, XdrState::kUnknown);
}

TEST(Form, AUnionTakesTheFormOfItsNumber) {
  constexpr std::string_view kUnion = "(0,3:o|1:4|2:16o|4:)";
  EXPECT_EQ(walked(kUnion, XdrWriter().u32(0).opaque("abcd")), (Walked{XdrState::kGood, 12, 0}));
  EXPECT_EQ(walked(kUnion, XdrWriter().u32(3).opaque("abcd")), (Walked{XdrState::kGood, 12, 3}));
  EXPECT_EQ(walked(kUnion, XdrWriter().u32(1).u32(9)), (Walked{XdrState::kGood, 8, 1}));
  EXPECT_EQ(walked(kUnion, XdrWriter().u32(2).zeros(16).opaque("")),
            (Walked{XdrState::kGood, 24, 2}));
  EXPECT_EQ(walked(kUnion, XdrWriter().u32(4)), (Walked{XdrState::kGood, 4, 4}));
  EXPECT_EQ(walked(kUnion, XdrWriter().u32(5)).state, XdrState::kUnknown);
  EXPECT_EQ(walked("(1:8|*:4)", XdrWriter().u32(77).u32(0)), (Walked{XdrState::kGood, 8, 77}));
}

TEST(Form, UnionsMayBeNestedAndTheLastOuterOneIsGivenBack) {
  constexpr std::string_view kForm = "(1:(0:4|2:8)|*:)(5:|6:4)";
  EXPECT_EQ(walked(kForm, XdrWriter().u32(1).u32(2).u64(0).u32(6).u32(0)),
            (Walked{XdrState::kGood, 24, 6}));
  EXPECT_EQ(walked(kForm, XdrWriter().u32(0).u32(5)), (Walked{XdrState::kGood, 8, 5}));
}

TEST(Form, NamedTypesAreWalkedLikeTheirForm) {
  // fattr4: a bitmap of two words and 5 bytes of values
  EXPECT_EQ(walked("a", XdrWriter().u32(2).u64(0).opaque("12345")),
            (Walked{XdrState::kGood, 12 + 12, 0}));
  // wcc_data with both kinds of attributes, and with none
  EXPECT_EQ(walked("w", XdrWriter().u32(1).zeros(24).u32(1).zeros(84)),
            (Walked{XdrState::kGood, 116, 0}));
  EXPECT_EQ(walked("w", XdrWriter().u32(0).u32(0)), (Walked{XdrState::kGood, 8, 0}));
  // sattr3 with all fields set, times by the client's clock
  EXPECT_EQ(walked("s", XdrWriter()
                            .u32(1)
                            .u32(0644)
                            .u32(1)
                            .u32(0)
                            .u32(1)
                            .u32(0)
                            .u32(1)
                            .u64(5)
                            .u32(2)
                            .u64(0)
                            .u32(2)
                            .u64(0)),
            (Walked{XdrState::kGood, 8 + 8 + 8 + 12 + 12 + 12, 0}));
}

TEST(Form, ACountOfBillionsEndsAtOnce) {
  for (const std::string_view form : {"[4]", "[16]", "[o]", "[(0:|1:4)]"}) {
    EXPECT_EQ(walked(form, XdrWriter().u32(0xFFFFFFFF).zeros(64)).state, XdrState::kShort);
  }
}

TEST(FormDeathTest, AMistakeInATableIsOurs) {
  EXPECT_DEATH(walked("z", XdrWriter()), "");
  EXPECT_DEATH(walked("(1:4", XdrWriter().u32(1)), "");
  EXPECT_DEATH(walked("(x:4)", XdrWriter().u32(1)), "");
}

}  // namespace
}  // namespace weir::nfs
