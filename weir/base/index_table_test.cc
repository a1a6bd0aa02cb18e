// SPDX-License-Identifier: Apache-2.0
#include "weir/base/index_table.h"

#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

TEST(IndexTable, FindsWhatWasInsertedAndNothingElse) {
  IndexTable table(4);
  table.insert(7, 1);
  table.insert(7, 2);  // another object with the same hash
  EXPECT_EQ(table.find(7, [](std::uint32_t index) { return index == 2; }), 2U);
  EXPECT_EQ(table.find(7, [](std::uint32_t) { return false; }), IndexTable::kNone);
  EXPECT_EQ(table.find(8, [](std::uint32_t) { return true; }), IndexTable::kNone);
  EXPECT_EQ(table.size(), 2U);
}

// Hashes from a small range, so that chains overlap and wrap around the end; and more entries than
// expected.
TEST(IndexTable, AgreesWithAMapWhateverIsInsertedAndErased) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    IndexTable table(60);
    std::map<std::uint32_t, std::uint64_t> hash_of;
    for (std::uint32_t step = 0; step < 5000; ++step) {
      if (hash_of.size() < 120 && rng.chance(3, 5)) {
        const std::uint64_t hash = rng.below(90);
        table.insert(hash, step);
        hash_of[step] = hash;
      } else if (!hash_of.empty()) {
        auto victim = hash_of.begin();
        std::advance(victim, static_cast<long>(rng.below(hash_of.size())));
        table.erase(victim->second, victim->first);
        hash_of.erase(victim);
      }
      ASSERT_EQ(table.size(), hash_of.size());
    }
    for (const auto& [index, hash] : hash_of) {
      const auto is_it = [wanted = index](std::uint32_t found) { return found == wanted; };
      EXPECT_EQ(table.find(hash, is_it), index);
    }
  }
}

TEST(IndexTableDeath, RefusesToEraseWhatIsNotThere) {
  IndexTable table(1);
  table.insert(1, 1);
  EXPECT_DEATH(table.erase(1, 9), "index");
}

}  // namespace
}  // namespace weir
