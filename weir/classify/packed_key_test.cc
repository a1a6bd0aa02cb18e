// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/packed_key.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace weir {
namespace {

Attributes sample(std::uint32_t salt) {
  Attributes attributes;
  attributes.job = JobId("job" + std::to_string(salt));
  attributes.nid = *parse_nid("10.1." + std::to_string(salt % 250) + ".3@tcp7");
  attributes.opcode = salt;
  attributes.uid = salt + 1;
  attributes.gid = salt + 2;
  attributes.projid = salt + 3;
  attributes.nodemap = salt + 4;
  attributes.export_name = export_name("/export/" + std::to_string(salt));
  return attributes;
}

// All sets of fields.
std::vector<FieldSet> all_sets() {
  std::vector<FieldSet> sets(1);
  for (unsigned i = 0; i < kFields; ++i) {
    for (std::size_t known = sets.size(); known-- > 0;) {
      const auto field = static_cast<Field>(i);
      const FieldSet one = field == Field::kSubnet ? FieldSet::subnet(24) : FieldSet{field};
      sets.push_back(sets[known] | one);
    }
  }
  return sets;
}

TEST(PackedKey, UnpacksToWhatTheFieldsSaid) {
  for (const FieldSet fields : all_sets()) {
    const PackedKey key(sample(9), fields);
    EXPECT_EQ(key.size(), PackedKey::words_of(fields));
    EXPECT_EQ(PackedKey::unpack(fields, key.data()), sample(9).only(fields));
  }
}

TEST(PackedKey, IsEqualIffTheFieldsAre) {
  for (const FieldSet fields : all_sets()) {
    if (fields.empty()) continue;
    const PackedKey one(sample(9), fields);
    const PackedKey other(sample(10), fields);
    EXPECT_TRUE(one.equals(PackedKey(sample(9), fields).data()));
    EXPECT_FALSE(one.equals(other.data()));
    EXPECT_NE(one.hash(), other.hash());
  }
  EXPECT_EQ(PackedKey::words_of(FieldSet{Field::kJobid}), 4U);
  EXPECT_EQ(PackedKey::words_of(FieldSet::generic() | FieldSet{Field::kExport}),
            PackedKey::kWordsMax);
}

TEST(PackedKey, HashesAreSpread) {
  std::set<std::uint32_t> tags;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    tags.insert(static_cast<std::uint32_t>(PackedKey(sample(i), FieldSet{Field::kJobid}).hash()));
  }
  EXPECT_GT(tags.size(), 9'990U);
}

}  // namespace
}  // namespace weir
