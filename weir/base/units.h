// SPDX-License-Identifier: Apache-2.0
//
// Parses and prints numbers with units.
//
//   count       20k  1.5M  1000000              k M G T P E are powers of 1000
//   size        64KiB  1.5GiB  4MB  512B  512   KiB = 1024, KB = 1000; a bare number is bytes
//   duration    100ms  1.5s  2h                 ns us ms s min h d
//   rate        1000  20k/s  1/d  7/20ms        a count per time; per second when no time is given
//   bandwidth   500MiB/s  50MB  10GiB/d         a size per time; its unit is required, since a bare
//                                               number could be bits, bytes or megabytes
//
// Fractions are exact: 1.5KiB is 1536 bytes, 0.3KiB is rejected as a size because it is not a whole
// number, and as a bandwidth it is exactly 307.2 bytes per second. parse_x() reads the output of
// print_x() as the same value. Errors quote the input and name the remedy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir {

Result<std::uint64_t> parse_count(std::string_view text);
Result<Bytes> parse_size(std::string_view text);
Result<Nanoseconds> parse_duration(std::string_view text);
Result<Rate> parse_rate(std::string_view text);
Result<Rate> parse_bandwidth(std::string_view text);

// Exact, in the largest unit that leaves a whole number.
std::string print_count(std::uint64_t count);
std::string print_size(Bytes size);
std::string print_duration(Nanoseconds duration);
std::string print_rate(Rate rate);
std::string print_bandwidth(Rate rate);

// Three or four digits, for people: 49.9MiB, 1023B.
std::string about_size(Bytes size);

}  // namespace weir
