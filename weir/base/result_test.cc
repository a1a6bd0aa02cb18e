// SPDX-License-Identifier: Apache-2.0
#include "weir/base/result.h"

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <gtest/gtest.h>

namespace weir {
namespace {

Result<int> parse_digit(const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '9') {
    return fail(std::errc::invalid_argument, text, "not a digit", "try 7");
  }
  return text[0] - '0';
}

// Passes an error to its caller, with another type of value.
Result<std::string> parse_twice(const std::string& text) {
  const Result<int> digit = parse_digit(text);
  if (!digit) return tl::unexpected(digit.error());
  return std::to_string(*digit) + std::to_string(*digit);
}

TEST(Error, MessageNamesTheObjectTheFaultAndWhatToTry) {
  const std::errc code = std::errc::invalid_argument;
  EXPECT_EQ((Error{code, "--rate", "must be above 0", "try 1000/s"}.message()),
            "--rate: must be above 0; try 1000/s");
  EXPECT_EQ((Error{code, "--rate", "must be above 0", ""}.message()), "--rate: must be above 0");
  EXPECT_EQ((Error{code, "", "out of memory", ""}.message()), "out of memory");
  EXPECT_EQ((Error{code, "", "no device", "plug one in"}.message()), "no device; plug one in");
}

TEST(Result, HoldsAValueOrTheReasonThereIsNone) {
  const Result<int> seven = parse_digit("7");
  ASSERT_TRUE(seven.has_value());
  EXPECT_EQ(*seven, 7);
  EXPECT_EQ(parse_digit("x").value_or(-1), -1);

  const Result<int> none = parse_digit("x");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error(), (Error{std::errc::invalid_argument, "x", "not a digit", "try 7"}));
  EXPECT_EQ(none.error().message(), "x: not a digit; try 7");
}

TEST(Result, AFailureIsHandedOnUnchanged) {
  EXPECT_EQ(parse_twice("4").value(), "44");
  EXPECT_EQ(parse_twice("x").error(), parse_digit("x").error());
}

TEST(Result, ChainsWithoutLeavingItsType) {
  const auto doubled = [](int n) { return n * 2; };
  const Result<int> eight = parse_digit("4").map(doubled);
  EXPECT_EQ(eight.value(), 8);
  const Result<int> none = parse_digit("").map(doubled);
  EXPECT_EQ(none.error().what, "not a digit");
}

TEST(Result, CarriesWhatCanOnlyBeMovedAndWhatIsNoValueAtAll) {
  Result<std::unique_ptr<int>> owned = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = std::move(owned).value();
  EXPECT_EQ(*taken, 3);

  const auto check = [](bool is_good) -> Result<void> {
    if (!is_good) return fail(std::errc::io_error, "disk0", "does not answer");
    return {};
  };
  EXPECT_TRUE(check(true).has_value());
  EXPECT_EQ(check(false).error().message(), "disk0: does not answer");
}

TEST(Result, AFailedCallOfTheSystemSaysWhatTheSystemSaid) {
  const Result<int> none = fail_errno(ENOENT, "/no/such", "create it");
  EXPECT_EQ(none.error().code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(none.error().message(), "/no/such: No such file or directory; create it");
}

}  // namespace
}  // namespace weir
