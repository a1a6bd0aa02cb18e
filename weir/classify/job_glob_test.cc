// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/job_glob.h"

#include <cstdint>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using Matcher = std::function<bool(std::string_view, std::string_view)>;

// The definition as code: exponential, and obviously correct.
bool naive(std::string_view pattern, std::string_view id) {
  if (pattern.empty()) return id.empty();
  if (pattern[0] == '*') {
    return naive(pattern.substr(1), id) || (!id.empty() && naive(pattern, id.substr(1)));
  }
  return !id.empty() && pattern[0] == id[0] && naive(pattern.substr(1), id.substr(1));
}

TEST(JobGlob, FitsTheWholeId) {
  struct Case {
    const char* pattern;
    const char* id;
    bool fits;
  };
  // As executed with Lustre's own matcher, except the last block.
  const Case cases[] = {
      {"dd.*", "dd.0", true},
      {"dd.*", "dd.", true},
      {"dd.*", "dd", false},
      {"*.500", "dd.500", true},
      {"*.500", "dd.5000", false},
      {"*", "", true},
      {"a*b", "a", false},
      {"a*b", "ab", true},
      {"a*b", "axxb", true},
      {"a*b", "abx", false},
      {"a*b", "xab", false},
      {"DD.*", "dd.0", false},
      {"dd.?", "dd.0", false},
      {"dd.[0]", "dd.0", false},
      {"dd.0", "dd.0", true},
      {"prog*.10*", "prog1.1000", true},
      {"prog*.10*", "prog.10", true},
      {"prog*.10*", "prog1.2000", false},
      // Lustre: ** does not match "", a** not "a", and *b not "*ab".
      {"**", "", true},
      {"a**", "a", true},
      {"*b", "*ab", true},
      {"**a**b**", "xaxbx", true},
      {"*\\*", "a\\*", true},
      {"a", "*", false},
      {"*", "*", true},
      {"", "", true},
      {"", "a", false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(job_glob_matches(c.pattern, c.id), c.fits) << c.pattern << " ~ " << c.id;
    EXPECT_EQ(naive(c.pattern, c.id), c.fits) << c.pattern << " ~ " << c.id;
  }
}

// Few letters, so that patterns often match.
std::string any_text(Rng& rng, std::uint64_t size_max, std::string_view letters) {
  std::string text(rng.below(size_max + 1), ' ');
  for (char& c : text) c = letters[rng.below(letters.size())];
  return text;
}

// Empty if the matcher agrees with the definition in this many cases, otherwise the case.
std::string disagreement(const Matcher& matches, int cases) {
  Rng rng(7);
  for (int i = 0; i < cases; ++i) {
    const std::string pattern = any_text(rng, 9, "ab*");
    const std::string id = any_text(rng, 9, i % 4 == 0 ? "ab*" : "ab");
    if (matches(pattern, id) == naive(pattern, id)) continue;
    return std::string(pattern).append(" ~ ").append(id);
  }
  return {};
}

TEST(JobGlobProperty, AgreesWithTheNaiveMatcher) {
  EXPECT_EQ(disagreement(job_glob_matches, 100'000), "");
}

// Mistake: never backtracks the bytes that a * has matched.
bool greedy(std::string_view pattern, std::string_view id) {
  if (pattern.empty()) return id.empty();
  if (pattern[0] != '*') {
    return !id.empty() && pattern[0] == id[0] && greedy(pattern.substr(1), id.substr(1));
  }
  const std::size_t next = pattern.find_first_not_of('*');
  if (next == std::string_view::npos) return true;
  const std::size_t found = id.find(pattern[next]);
  return found != std::string_view::npos && greedy(pattern.substr(next), id.substr(found));
}

// Mistake of Lustre's matcher: a literal * in the id is compared as a letter before it is a *.
bool letter_first(std::string_view pattern, std::string_view id) {
  if (pattern.empty()) return id.empty();
  if (!id.empty() && pattern[0] == id[0]) return letter_first(pattern.substr(1), id.substr(1));
  if (pattern[0] != '*') return false;
  return letter_first(pattern.substr(1), id) ||
         (!id.empty() && letter_first(pattern, id.substr(1)));
}

TEST(JobGlobProperty, TheNaiveMatcherCatchesWrongOnes) {
  EXPECT_NE(disagreement(greedy, 100'000), "");
  EXPECT_NE(disagreement(letter_first, 100'000), "");
}

TEST(JobGlobProperty, TakesTimeInProportionToPatternTimesId) {
  // With backtracking over every * this would practically never end.
  std::string pattern;
  for (int i = 0; i < 2000; ++i) pattern += "a*";
  EXPECT_FALSE(job_glob_matches(pattern + "b", std::string(31, 'a')));
  EXPECT_FALSE(job_glob_matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(20'000, 'a')));
  EXPECT_TRUE(job_glob_matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*", std::string(20'000, 'a')));
}

}  // namespace
}  // namespace weir
