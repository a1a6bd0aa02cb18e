// SPDX-License-Identifier: Apache-2.0
#include "weir/config/toml_table.h"

#include <functional>

#include <gtest/gtest.h>

namespace weir::config {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The messages after reading a text with the keys "name", "size", "slots".
std::vector<std::string> mistakes_of(const std::string& text,
                                     const std::function<void(const TomlTable&)>& read) {
  const auto document = parse_toml(text, "f");
  EXPECT_TRUE(document) << text;
  TomlMistakes mistakes("f");
  read(TomlTable(*document, "top", mistakes, {"name", "size", "slots"}));
  std::vector<std::string> messages;
  for (const Error& error : mistakes.in_order()) messages.push_back(error.message());
  return messages;
}

using Messages = std::vector<std::string>;

TEST(TomlTable, TellsEveryMistakeInTheOrderOfTheFile) {
  EXPECT_EQ(mistakes_of("slot = 1\nsize = 'x'\nname = 5\n",
                        [](const TomlTable& table) {
                          table.text("name", "");
                          table.size("size", Bytes{1}, Bytes{1}, Bytes{9});
                        }),
            (Messages{"f:1:1: top: unknown key 'slot'; did you mean slots?",
                      "f:2:8: top: size is not a valid size; write for example '4KiB'",
                      "f:3:8: top: name must be a quoted string"}));
}

TEST(TomlTable, DoesNotMissWhatWasOnlyMisspelt) {
  EXPECT_EQ(mistakes_of("nam = 'x'\n", [](const TomlTable& table) { table.miss("name"); }),
            (Messages{"f:1:1: top: unknown key 'nam'; did you mean name?"}));
  EXPECT_EQ(mistakes_of("", [](const TomlTable& table) { table.miss("name", "give one"); }),
            (Messages{"f:1:1: top: name is missing; give one"}));
}

TEST(TomlTable, KeepsBounds) {
  const auto slots = [](std::uint32_t& into) {
    return [&into](const TomlTable& table) { into = table.small("slots", 7, 2, 9); };
  };
  std::uint32_t got = 0;
  for (const auto* text : {"slots = 1", "slots = 10", "slots = -1", "slots = '3'", "slots = 3.0"}) {
    EXPECT_EQ(mistakes_of(text, slots(got)),
              (Messages{"f:1:9: top: slots must be a whole number from 2 to 9"}))
        << text;
    EXPECT_EQ(got, 7U);
  }
  EXPECT_TRUE(mistakes_of("slots = 9", slots(got)).empty());
  EXPECT_EQ(got, 9U);
}

TEST(TomlTable, ReadsTimesAndSizes) {
  const auto time = [](const TomlTable& table) {
    EXPECT_EQ(table.time("name", seconds{1}, milliseconds{1}, seconds{2}), milliseconds{5});
  };
  EXPECT_TRUE(mistakes_of("name = '5ms'", time).empty());
  const auto bad_time = [](const TomlTable& table) {
    EXPECT_EQ(table.time("name", seconds{1}, milliseconds{1}, seconds{2}), seconds{1});
  };
  EXPECT_EQ(mistakes_of("name = '3s'", bad_time), (Messages{"f:1:8: top: name must be from 1ms to "
                                                            "2s"}));
  EXPECT_EQ(mistakes_of("name = 5", bad_time),
            (Messages{"f:1:8: top: name is not a valid time; write for example '16ms' or '5s'"}));
  EXPECT_EQ(mistakes_of("name = '-5ms'",
                        [](const TomlTable& table) {
                          table.time("name", seconds{1}, Nanoseconds{0}, Nanoseconds::max());
                        }),
            (Messages{"f:1:8: top: name must be at least 0ns"}));
  EXPECT_TRUE(mistakes_of("size = 512", [](const TomlTable& table) {
                EXPECT_EQ(table.size("size", Bytes{1}, Bytes{1}, Bytes{512}), Bytes{512});
              }).empty());
}

TEST(TomlTable, ReadsCostsWordsAndLists) {
  const auto cost = [](const TomlTable& table) { table.cost("name", Cost::op()); };
  EXPECT_TRUE(mistakes_of("name = 'affine:1:2'", cost).empty());
  EXPECT_EQ(mistakes_of("name = 'affine:1'", cost),
            (Messages{"f:1:8: top: name is not a valid cost; expected op, bytes or affine:A:B"}));
  const auto word = [](const TomlTable& table) {
    EXPECT_EQ(table.word("name", 1, {"off", "require"}), 1U);
  };
  EXPECT_TRUE(mistakes_of("name = 'require'", word).empty());
  EXPECT_EQ(mistakes_of("name = 'requires'", word),
            (Messages{"f:1:8: top: name cannot be 'requires'; did you mean 'require'?"}));
  EXPECT_EQ(mistakes_of("name = true", word),
            (Messages{"f:1:8: top: name must be one of 'off', 'require'"}));
  const auto texts = [](const TomlTable& table) { EXPECT_EQ(table.texts("name").size(), 1U); };
  EXPECT_TRUE(mistakes_of("name = 'a'", texts).empty());
  EXPECT_EQ(mistakes_of("name = [\n'a',\n5]", texts),
            (Messages{"f:3:1: top: name must contain quoted strings"}));
}

TEST(TomlTable, ReadsOneTableOrMany) {
  const auto count = [](std::size_t& into) {
    return [&into](const TomlTable& table) { table.each("name", [&](const auto&) { ++into; }); };
  };
  std::size_t one = 0;
  EXPECT_TRUE(mistakes_of("[name]", count(one)).empty());
  EXPECT_EQ(one, 1U);
  std::size_t many = 0;
  EXPECT_TRUE(mistakes_of("[[name]]\n[[name]]", count(many)).empty());
  EXPECT_EQ(many, 2U);
  std::size_t none = 0;
  EXPECT_EQ(mistakes_of("name = 5", count(none)),
            (Messages{"f:1:8: top: name must be a table, or an array of tables"}));
  EXPECT_EQ(mistakes_of("name = [5]", count(none)),
            (Messages{"f:1:9: top: name must contain tables"}));
}

TEST(TomlTable, BoundsHowMuchItTells) {
  TomlMistakes mistakes("f");
  for (std::uint32_t line = 1; line <= 250; ++line) mistakes.add({line, 1}, "wrong");
  const std::vector<Error> errors = mistakes.in_order();
  ASSERT_EQ(errors.size(), TomlMistakes::kToldMax + 1);
  EXPECT_EQ(errors.back().message(), "f: 150 more errors");
}

}  // namespace
}  // namespace weir::config
