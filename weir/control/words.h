// SPDX-License-Identifier: Apache-2.0
//
// Numbers as people read them, for sentences that the server writes and the commands print: at most
// three digits and a unit, counts with separators. Limits below a million are exact, as they were
// set. The JSON has exact values beside them.
//
//   "last 28.7 s: 36,000 requests waited 25.0 ms on average"
//
// Rounded down, so that a limit is never shown above its value. No state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weir::control {

// "36,000", for a setting or a small number.
std::string count_words(std::uint64_t count);
// "1 request", "36,000 requests"
std::string counted(std::uint64_t count, std::string_view thing);
// 5472300 as 5470000: for counts and rates that were measured.
std::uint64_t three_digits(std::uint64_t number);
// "25.0 ms", "1.2 s", "0 ns"
std::string time_words(std::uint64_t ns);
// "200 operations/s", "1.25 M operations/s"
std::string rate_words(std::uint64_t rate, std::string_view unit);
// "5.6 MB/s", "500 B/s"
std::string bandwidth_words(std::uint64_t bytes);
// "5.47 MB"
std::string size_words(std::uint64_t bytes);

// A word that a shell passes on as it is.
std::string shell_word(const std::string& word);

}  // namespace weir::control
