// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/attributes.h"

#include <string>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

TEST(FieldSet, ReadsTheTypesOfALustreServer) {
  const auto type = [](std::string_view text) { return FieldSet::parse_type(text).value(); };
  EXPECT_EQ(type("nid"), FieldSet{Field::kNid});
  EXPECT_EQ(type("jobid+opcode"), (FieldSet{Field::kJobid, Field::kOpcode}));
  EXPECT_EQ(type("uid+gid+projid"), (FieldSet{Field::kUid, Field::kGid, Field::kProjid}));
  EXPECT_EQ(type("nodemap+opcode"), (FieldSet{Field::kNodemap, Field::kOpcode}));
  EXPECT_EQ(type("nid+nid"), FieldSet{Field::kNid});
  EXPECT_EQ(type("nid+"), FieldSet{Field::kNid});
  EXPECT_EQ(type("generic"), FieldSet::generic());
}

TEST(FieldSet, RefusesOtherTypes) {
  // "nid++uid" means nid alone on a Lustre server.
  for (const char* text : {"", "+", "+nid", "NID", "nid + uid", "abc", "nid++uid", "nid++",
                           "nid,uid", "jobid+nid+opcode", "generic+nid", "nid\n"}) {
    const auto type = FieldSet::parse_type(text);
    ASSERT_FALSE(type) << text;
    EXPECT_EQ(type.error().code, std::errc::invalid_argument);
  }
  EXPECT_EQ(FieldSet::parse_type("nid++uid").error().message().substr(0, 37),
            "column 5: '' is not a field; expected");
  EXPECT_EQ(
      FieldSet::parse_type("jobid+nid+opcode").error().message(),
      "column 16: a type of 16 bytes; the maximum is 15; name fewer fields, or use generic for "
      "all");
}

TEST(FieldSet, IsShownAsPoliciesShowIt) {
  EXPECT_EQ(FieldSet::generic().print_type(), "");
  EXPECT_EQ((FieldSet{Field::kGid, Field::kUid}).print_type(), "uid+gid");
  EXPECT_EQ(FieldSet{Field::kNodemap}.print_type(), "nodemap");
  EXPECT_EQ(FieldSet{}.size(), 0U);
  EXPECT_EQ(FieldSet::generic().size(), kLustreFields);
  EXPECT_EQ(FieldSet{Field::kGid}.first(), Field::kGid);
}

TEST(FieldSet, WhatIsPrintedReadsBackTheSame) {
  for (unsigned bits = 1; bits < (1U << kFields); ++bits) {
    FieldSet set;
    std::string text;
    for (unsigned i = 0; i < kFields; ++i) {
      if ((bits >> i & 1) == 0) continue;
      text += (text.empty() ? "" : "+") + std::string(field_name(static_cast<Field>(i)));
      if (static_cast<Field>(i) == Field::kSubnet) text += "/24";
    }
    const bool is_of_lustre = bits < 1U << kLustreFields;
    const auto read = FieldSet::read(text);
    if (!read) {
      EXPECT_FALSE(is_of_lustre) << text << " has nid and a subnet";
      EXPECT_NE(text.find("nid"), std::string::npos);
      continue;
    }
    set = *read;
    const bool is_generic = bits == (1U << kLustreFields) - 1;
    EXPECT_EQ(set.print_type(), is_generic ? "" : text);
    EXPECT_EQ(FieldSet::parse_type(text).has_value(), is_of_lustre && text.size() <= 15) << text;
  }
}

TEST(FieldSet, FieldsOfWeirArePartOfNoType) {
  EXPECT_FALSE(FieldSet::generic().has(Field::kExport));
  EXPECT_FALSE(FieldSet::generic().has(Field::kSubnet));
  for (const char* text : {"export", "subnet/24", "nid+export"}) {
    const auto type = FieldSet::parse_type(text);
    ASSERT_FALSE(type) << text;
    EXPECT_EQ(type.error().message(),
              "column 1: '" + std::string(text) +
                  "' has fields that are not part of a type; rules of any type may use export, and "
                  "by=export or by=subnet/N");
  }
}

TEST(FieldSet, ASubnetHasALength) {
  EXPECT_EQ(FieldSet::read("subnet/24"), FieldSet::subnet(24));
  EXPECT_EQ(FieldSet::subnet(24).print_type(), "subnet/24");
  for (const char* text :
       {"subnet", "subnet/", "subnet/0", "subnet/129", "subnet/x", "nid/24", "subnet/24/24"}) {
    EXPECT_FALSE(FieldSet::read(text)) << text;
  }
  EXPECT_EQ(FieldSet::read("uid+subnet/0").error().at, 4U);
  EXPECT_EQ(FieldSet::read("subnet/129").error().hint, "expected subnet/N, N from 1 to 128");
}

TEST(FieldSet, ALongerPartOfTheAddressTellsMoreThanAShorterOne) {
  const FieldSet both = FieldSet::subnet(16) | FieldSet::subnet(24);
  EXPECT_EQ(both, FieldSet::subnet(24));
  EXPECT_EQ(both | FieldSet{Field::kNid}, FieldSet{Field::kNid});
  for (const char* text : {"subnet/24+nid", "nid+subnet/24", "subnet/16+subnet/24"}) {
    EXPECT_EQ(FieldSet::read(text).error().hint, "give nid, or one subnet/N") << text;
  }
}

Attributes sample() {
  return {JobId("dd.0"), parse_nid("10.0.0.1@tcp").value(), 4, 500, 501, 7, 1, {}};
}

TEST(Attributes, OfATypeAreNotSplitByOtherFields) {
  Attributes other = sample();
  other.gid = 502;
  other.opcode = 3;
  const FieldSet uid{Field::kUid};
  EXPECT_NE(sample(), other);
  EXPECT_EQ(sample().only(uid), other.only(uid));
  EXPECT_EQ(sample().only(uid).hash(), other.only(uid).hash());
  EXPECT_NE(sample().only({Field::kUid, Field::kGid}), other.only({Field::kUid, Field::kGid}));
  EXPECT_EQ(sample().only(FieldSet::generic()), sample());
  EXPECT_EQ(sample().only({}), other.only({}));
}

TEST(Attributes, OfASubnetAreThoseOfAllItsClients) {
  const auto of = [](std::string_view text, unsigned length) {
    Attributes one = sample();
    one.nid = parse_nid(text).value();
    return one.only(FieldSet::subnet(length)).nid;
  };
  EXPECT_EQ(of("10.0.0.1@tcp", 24), of("10.0.0.200@tcp", 24));
  EXPECT_NE(of("10.0.0.1@tcp", 24), of("10.0.1.1@tcp", 24));
  EXPECT_NE(of("10.0.0.1@tcp", 24), of("10.0.0.1@tcp1", 24)) << "another network";
  EXPECT_EQ(of("10.0.0.1@tcp", 128), parse_nid("10.0.0.1@tcp").value());
  EXPECT_EQ(of("2001:db8::1@tcp", 64), of("2001:db8::ffff@tcp", 64));
  EXPECT_NE(of("2001:db8::1@tcp", 64), of("2001:db8:0:1::1@tcp", 64));
  EXPECT_EQ(sample().only(FieldSet::subnet(24)).uid, 0U);
  const FieldSet longer = FieldSet::subnet(16) | FieldSet::subnet(24);
  EXPECT_EQ(sample().only(longer).only(FieldSet::subnet(16)), sample().only(FieldSet::subnet(16)))
      << "a key of the longer one has the shorter one";
}

TEST(Attributes, EveryFieldCounts) {
  std::vector<Attributes> all(9, sample());
  all[1].job = JobId("dd.1");
  all[2].nid = parse_nid("10.0.0.1@tcp1").value();
  all[3].opcode = 5;
  all[4].uid = 0;
  all[5].gid = 500;
  all[6].projid = 0;
  all[7].nodemap = 0;
  all[8].export_name = export_name("/home");
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      EXPECT_EQ(all[i] == all[j], i == j);
      EXPECT_EQ(all[i].hash() == all[j].hash(), i == j);
    }
    if (i == 0) continue;
    const FieldSet one{static_cast<Field>(i - 1)};
    EXPECT_NE(all[i].only(one), all[0].only(one)) << i;
  }
}

TEST(Attributes, HashTheSameEverywhere) {
  // A fixed value: another one would break recorded traces.
  EXPECT_EQ(sample().hash(), 7591546983876481599U);
  EXPECT_EQ(Attributes{}.hash(), 11648074501471673075U);
}

// How full the fullest of as many slots as there are keys is, by the lowest bits of the hash.
template <class Hash>
std::size_t fullest_slot(const std::vector<Attributes>& keys, Hash hash) {
  std::unordered_map<std::uint64_t, std::size_t> slots;
  std::size_t fullest = 0;
  for (const Attributes& key : keys) {
    fullest = std::max(fullest, ++slots[hash(key) % 65536]);
  }
  return fullest;
}

TEST(AttributesProperty, HashSpreadsKeysThatDifferLittle) {
  std::vector<Attributes> by_uid(65536);
  std::vector<Attributes> by_job(65536);
  std::vector<Attributes> by_nid(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    by_uid[i].uid = i;
    by_job[i].job = JobId("job." + std::to_string(i));
    by_nid[i].nid = {0, 0x0a00'0000 + i, 0, NetType::kTcp, AddressFamily::kIpv4};
  }
  // A random function leaves 8 or 9 in the fullest of 65536 slots; 12 has a chance of 10^-4.
  const auto hash = [](const Attributes& a) { return a.hash(); };
  EXPECT_LE(fullest_slot(by_uid, hash), 12U);
  EXPECT_LE(fullest_slot(by_job, hash), 12U);
  EXPECT_LE(fullest_slot(by_nid, hash), 12U);
  // Mistake: a field is left out.
  EXPECT_GT(fullest_slot(by_uid, [](const Attributes& a) { return a.nid.hash() ^ a.job.hash(); }),
            12U);
}

}  // namespace
}  // namespace weir
