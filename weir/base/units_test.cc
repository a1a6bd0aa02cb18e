// SPDX-License-Identifier: Apache-2.0
#include "weir/base/units.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// The error message of a parser, as shown to the user.
template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().message();
}

TEST(Units, CountsArePowersOfAThousand) {
  EXPECT_EQ(*parse_count("0"), 0U);
  EXPECT_EQ(*parse_count("1000000"), 1'000'000U);
  EXPECT_EQ(*parse_count("20k"), 20'000U);
  EXPECT_EQ(*parse_count("20K"), 20'000U);
  EXPECT_EQ(*parse_count("1.5M"), 1'500'000U);
  EXPECT_EQ(*parse_count("18446744073709551615"), UINT64_MAX);
}

TEST(Units, SizesKnowBinaryAndDecimalUnits) {
  EXPECT_EQ(*parse_size("512"), Bytes{512});
  EXPECT_EQ(*parse_size("512B"), Bytes{512});
  EXPECT_EQ(*parse_size("64KiB"), Bytes{65536});
  EXPECT_EQ(*parse_size("64kB"), Bytes{64000});
  EXPECT_EQ(*parse_size("1.5GiB"), Bytes{1'610'612'736});
  EXPECT_EQ(*parse_size("1.500000000000000000000000GiB"), Bytes{1'610'612'736});
  EXPECT_EQ(*parse_size("15EiB"), Bytes{std::uint64_t{15} << 60});
}

TEST(Units, DurationsRunFromNanosecondsToDays) {
  EXPECT_EQ(*parse_duration("0s"), Nanoseconds{0});
  EXPECT_EQ(*parse_duration("1ns"), Nanoseconds{1});
  EXPECT_EQ(*parse_duration("100ms"), Nanoseconds{milliseconds{100}});
  EXPECT_EQ(*parse_duration("1.5min"), Nanoseconds{seconds{90}});
  EXPECT_EQ(*parse_duration("2h"), Nanoseconds{hours{2}});
  EXPECT_EQ(*parse_duration("36500d"), Nanoseconds{hours{24 * 36500}});
}

TEST(Units, RatesArePerSecondUnlessTheySayOtherwise) {
  EXPECT_EQ(*parse_rate("1000"), Rate::per_second(1000));
  EXPECT_EQ(*parse_rate("20k/s"), Rate::per_second(20'000));
  EXPECT_EQ(*parse_rate("1/d"), Rate(Tokens{1}, hours{24}));
  EXPECT_EQ(*parse_rate("7/20ms"), Rate(Tokens{7}, milliseconds{20}));
  EXPECT_EQ(*parse_rate("0.5"), Rate(Tokens{1}, seconds{2}));
  EXPECT_EQ(*parse_rate("1T"), Rate::per_second(1'000'000'000'000));
}

TEST(Units, BandwidthsKeepEveryDigit) {
  EXPECT_EQ(*parse_bandwidth("500MiB/s"), Rate::per_second(524'288'000));
  EXPECT_EQ(*parse_bandwidth("50MB"), Rate::per_second(50'000'000));
  EXPECT_EQ(*parse_bandwidth("0.3KiB/s"), Rate(Tokens{3072}, seconds{10}));
  EXPECT_EQ(*parse_bandwidth("6MiB/min"), Rate(Tokens{6U << 20}, minutes{1}));
}

TEST(Units, ABandwidthWithoutAUnitIsRefused) {
  EXPECT_EQ(error_of(parse_bandwidth("50")),
            "'50': bandwidth needs a unit; write for example 500MiB/s or 50MB/s");
  EXPECT_EQ(error_of(parse_bandwidth("50/s")),
            "'50/s': bandwidth needs a unit; write for example 500MiB/s or 50MB/s");
  EXPECT_EQ(error_of(parse_duration("100")),
            "'100': duration needs a unit; write for example 100ms, 1.5s or 2h");
}

TEST(Units, UnknownUnitsAreNamedWithTheNearestOrAll) {
  EXPECT_EQ(error_of(parse_bandwidth("5mib/s")),
            "'5mib/s': bandwidth has the unknown unit 'mib'; did you mean MiB?");
  EXPECT_EQ(error_of(parse_size("64K")), "'64K': size has the unknown unit 'K'; did you mean KiB?");
  EXPECT_EQ(error_of(parse_count("5m")), "'5m': count has the unknown unit 'm'; did you mean M?");
  EXPECT_EQ(error_of(parse_duration("5m")),
            "'5m': duration has the unknown unit 'm'; units are ns us ms s min h d");
  EXPECT_EQ(error_of(parse_size("5 KiB")),
            "'5 KiB': size has the unknown unit ' KiB'; "
            "units are B KiB MiB GiB TiB PiB EiB kB KB MB GB TB PB EB");
}

TEST(Units, ZeroNegativeAndEmptyAreRefusedWhereTheyMakeNoSense) {
  EXPECT_EQ(error_of(parse_rate("0")),
            "'0': rate must not be zero; write for example 1000, 20k/s or 1/d");
  EXPECT_EQ(error_of(parse_bandwidth("0.000MiB")),
            "'0.000MiB': bandwidth must not be zero; write for example 500MiB/s or 50MB/s");
  EXPECT_EQ(error_of(parse_size("-5")),
            "'-5': size must not be negative; write for example 4096, 64KiB or 1.5GB");
  for (const char* text : {"", ".", ".5", "5.", "k", "+5", "0x10", "1e3", "1_000", "5..5", " 5",
                           "5 ", "5\n", "NaN", "inf", "5kk", "1,5k"}) {
    EXPECT_FALSE(parse_count(text)) << text;
    EXPECT_FALSE(parse_size(text)) << text;
    EXPECT_FALSE(parse_rate(text)) << text;
    EXPECT_FALSE(parse_duration(std::string(text) + "s")) << text;
  }
  for (const char* text : {"5/", "5/0s", "5/x", "5//s", "5/s/s", "/s", "5/-1s", "5/1"}) {
    EXPECT_FALSE(parse_rate(text)) << text;
  }
}

TEST(Units, OverflowIsRefusedNotWrapped) {
  EXPECT_EQ(error_of(parse_count("18446744073709551616")),
            "'18446744073709551616': count has too many digits; at most 19 digits");
  EXPECT_EQ(error_of(parse_size("16EiB")),
            "'16EiB': size is too large; at most 18446744073709551615B");
  EXPECT_EQ(error_of(parse_duration("36501d")), "'36501d': duration is too large; at most 36500d");
  EXPECT_EQ(error_of(parse_rate("1.1T")), "'1.1T': rate is too large; at most 10^12 per second");
  EXPECT_EQ(parse_bandwidth("9999999999999999999EiB/ns").error().code,
            std::errc::result_out_of_range);
  EXPECT_FALSE(parse_rate("0.000000000000000001/36500d"));
  EXPECT_FALSE(parse_size(std::string(5000, '9')));
  EXPECT_EQ(*parse_size(std::string(5000, '0') + "7"), Bytes{7});
}

TEST(Units, AFractionOfAByteIsRefusedAsASize) {
  EXPECT_EQ(error_of(parse_size("0.3KiB")),
            "'0.3KiB': size is not a whole number; write for example 4096, 64KiB or 1.5GB");
  EXPECT_EQ(error_of(parse_duration("0.5ns")),
            "'0.5ns': duration is not a whole number; write for example 100ms, 1.5s or 2h");
}

TEST(Units, HostileTextIsShownHarmlessly) {
  EXPECT_EQ(error_of(parse_size("5\x1b[2J")).substr(0, 12), "'5\\x1b[2J': ");
}

TEST(Units, PrintsTheLargestUnitThatLeavesAWholeNumber) {
  EXPECT_EQ(print_count(20'000), "20k");
  EXPECT_EQ(print_count(0), "0");
  EXPECT_EQ(print_size(Bytes{65536}), "64KiB");
  EXPECT_EQ(print_size(Bytes{64000}), "64kB");
  EXPECT_EQ(print_size(Bytes{0}), "0B");
  EXPECT_EQ(print_duration(milliseconds{1500}), "1500ms");
  EXPECT_EQ(print_rate(Rate::per_second(1000)), "1k/s");
  EXPECT_EQ(print_rate(Rate(Tokens{1}, hours{24})), "1/d");
  EXPECT_EQ(print_rate(Rate(Tokens{7}, milliseconds{30})), "14k/min");
  EXPECT_EQ(print_rate(Rate(Tokens{7}, Nanoseconds{11})), "7/11ns");
  EXPECT_EQ(print_bandwidth(Rate::per_second(524'288'000)), "500MiB/s");
}

TEST(Units, AboutIsShort) {
  EXPECT_EQ(about_size(Bytes{1023}), "1023B");
  EXPECT_EQ(about_size(Bytes{1536}), "1.5KiB");
  EXPECT_EQ(about_size(Bytes{1'047'552}), "1023KiB");
  EXPECT_EQ(about_size(Bytes{UINT64_MAX}), "15.9EiB");
}

RC_GTEST_PROP(UnitsProperty, WhatIsPrintedReadsBackTheSame, (std::uint64_t n, std::uint64_t m)) {
  RC_ASSERT(*parse_count(print_count(n)) == n);
  RC_ASSERT(*parse_size(print_size(Bytes{n})) == Bytes{n});
  const Nanoseconds time{static_cast<std::int64_t>(m % 3'000'000'000'000'000'000) + 1};
  RC_ASSERT(*parse_duration(print_duration(time)) == time);
  const Rate rate(Tokens{n % 1'000'000'000'000 + 1},
                  *rc::gen::element<Nanoseconds>(seconds{1}, time, milliseconds{20}, hours{24}));
  RC_PRE(rate <= Rate::per_second(1'000'000'000'000));
  RC_ASSERT(*parse_rate(print_rate(rate)) == rate);
  RC_ASSERT(*parse_bandwidth(print_bandwidth(rate)) == rate);
}

}  // namespace
}  // namespace weir
