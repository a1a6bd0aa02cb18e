// SPDX-License-Identifier: Apache-2.0
#include "weir/config/toml.h"

#include <gtest/gtest.h>

namespace weir::config {
namespace {

TEST(Toml, KeepsEveryKindOfValue) {
  const auto document =
      parse_toml("a = true\nb = -3\nc = 0.5\nd = 'x'\ne = [1, 2]\nf = 2020-01-01\n[g]\n", "f");
  ASSERT_TRUE(document) << document.error().message();
  EXPECT_TRUE(*document->find("a")->as<bool>());
  EXPECT_EQ(*document->find("b")->as<std::int64_t>(), -3);
  EXPECT_EQ(*document->find("c")->as<double>(), 0.5);
  EXPECT_EQ(*document->find("d")->as<std::string>(), "x");
  EXPECT_EQ(document->find("e")->items()->size(), 2U);
  EXPECT_EQ(document->find("f")->as<std::string>(), nullptr) << "a date is of no kind";
  EXPECT_TRUE(document->find("g")->is_table());
  EXPECT_TRUE(document->find("g")->members().empty());
  EXPECT_FALSE(document->find("h"));
}

TEST(Toml, KnowsWhereEverythingStands) {
  const auto document = parse_toml("# one\n  b = 'x'\na = [1,\n  2]\n", "f");
  ASSERT_TRUE(document);
  const TomlMember b = document->members().front();
  EXPECT_EQ(b.key.at, (TomlPlace{2, 3}));
  EXPECT_EQ(b.value.at(), (TomlPlace{2, 7}));
  EXPECT_EQ(document->find("a")->items()->back().at(), (TomlPlace{4, 3}));
}

TEST(Toml, KeepsTheOrderOfTheFile) {
  const auto document = parse_toml("z = 1\na = 2\n[m]\nk = 1\n", "f");
  ASSERT_TRUE(document);
  std::string order;
  for (const TomlMember& member : document->members()) order += member.key.name;
  EXPECT_EQ(order, "zam");
}

// Values are views: a copy of the document keeps them.
TEST(Toml, ACopyOfTheDocumentKeepsItsValues) {
  std::optional<TomlDocument> kept;
  {
    const auto document = parse_toml("a = 'a text that is long enough for the heap'\n", "f");
    ASSERT_TRUE(document);
    kept = *document;
  }
  EXPECT_EQ(*kept->find("a")->as<std::string>(), "a text that is long enough for the heap");
}

TEST(Toml, SaysWhereItIsNoToml) {
  EXPECT_EQ(parse_toml("a = 1\na = 2\n", "f").error().where, "f:2:5");
  EXPECT_EQ(parse_toml("a = \n", "f").error().where, "f:1:5");
  EXPECT_EQ(parse_toml("a = '\xff'\n", "f").error().code, std::errc::invalid_argument);
}

TEST(Toml, AHeaderThatIsNoneIsRefused) {
  for (const char* text : {"[/s]\n", "[[[a]]]\n", "[=", "[[", "[", "[[=", "[ .a]\n"}) {
    EXPECT_FALSE(parse_toml(text, "f")) << text;
  }
  EXPECT_EQ(parse_toml("[/s]\n", "f").error().where, "f:1:2");
}

TEST(Toml, LettersBeyondAsciiStandInTextsOnly) {
  for (const char* text : {"\u00e9 = 1\n", "a\u03cc = 1\n", "[\u03cc]\n", "a = 1\u00a0\n",
                           "a = \"\\\u00e9\"\n", "a = 1 \u0416\n"}) {
    EXPECT_FALSE(parse_toml(text, "f")) << text;
  }
  const auto document =
      parse_toml("\ufeff# \u00e9\na = '\u00e9'\nb = \"\"\"\\\n  \u00e9\"\"\"\n", "f");
  ASSERT_TRUE(document) << document.error().message();
  EXPECT_EQ(*document->find("a")->as<std::string>(), "\u00e9");
  EXPECT_EQ(*document->find("b")->as<std::string>(), "\u00e9");
}

TEST(Toml, ANestThatIsTooDeepIsRefused) {
  EXPECT_FALSE(parse_toml("a = " + std::string(100'000, '['), "f"));
}

}  // namespace
}  // namespace weir::config
