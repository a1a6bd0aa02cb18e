// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/nid.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

Nid nid(std::string_view text) { return parse_nid(text).value(); }
NidList list(std::string_view text) { return NidList::parse(text).value(); }

TEST(Nid, IsReadAndPrinted) {
  const char* texts[] = {"192.168.1.1@tcp",
                         "0.0.0.0@o2ib7",
                         "255.255.255.255@gip",
                         "10.0.0.1@efa",
                         "0@lo",
                         "17@gni2",
                         "4294967295@ptlf",
                         "1@kfi",
                         "1@bxi3f",
                         "2001:db8::1@tcp",
                         "::@tcp",
                         "::1@o2ib",
                         "1::@tcp",
                         "1:2:3:4:5:6:7:8@tcp"};
  for (const char* text : texts) EXPECT_EQ(print_nid(nid(text)), text);
  EXPECT_EQ(print_nid(Nid{}), "none");
}

TEST(Nid, HasOneSpellingWhenPrinted) {
  EXPECT_EQ(nid("10.0.0.1@tcp0"), nid("10.0.0.1@tcp"));
  EXPECT_NE(nid("10.0.0.1@tcp1"), nid("10.0.0.1@tcp"));
  EXPECT_EQ(print_nid(nid("0x0a.0.0.010@tcp0x1")), "10.0.0.8@tcp1");
  EXPECT_EQ(print_nid(nid("2001:DB8:0:0:0:0:0:1@tcp")), "2001:db8::1@tcp");
  EXPECT_EQ(print_nid(nid("::ffff:10.0.0.1@tcp")), "::ffff:a00:1@tcp");
  // RFC 5952: the longest run of zeros, the first of two, never a single one.
  EXPECT_EQ(print_nid(nid("1:0:0:2:0:0:0:3@tcp")), "1:0:0:2::3@tcp");
  EXPECT_EQ(print_nid(nid("1:0:0:2:3:0:0:4@tcp")), "1::2:3:0:0:4@tcp");
  EXPECT_EQ(print_nid(nid("1:0:2:3:4:5:6:7@tcp")), "1:0:2:3:4:5:6:7@tcp");
}

TEST(Nid, OfOtherFamilyOrNetIsAnotherOne) {
  EXPECT_NE(nid("0.0.0.1@tcp"), nid("::1@tcp"));
  EXPECT_NE(nid("1@gni"), nid("1@kfi"));
  EXPECT_NE(nid("10.0.0.1@tcp").hash(), nid("10.0.0.1@o2ib").hash());
}

TEST(Nid, HasANetworkOfAnyLength) {
  const auto network = [](std::string_view text, unsigned length) {
    return print_network(parse_nid(text).value().network(length), length);
  };
  EXPECT_EQ(network("10.1.2.3@tcp", 24), "10.1.2.0/24@tcp");
  EXPECT_EQ(network("10.1.2.3@tcp", 31), "10.1.2.2/31@tcp");
  EXPECT_EQ(network("10.1.2.3@o2ib4", 1), "0.0.0.0/1@o2ib4");
  EXPECT_EQ(network("10.1.2.3@tcp", 64), "10.1.2.3/32@tcp");
  EXPECT_EQ(network("2001:db8:1:2:3::4@tcp", 48), "2001:db8:1::/48@tcp");
  EXPECT_EQ(network("2001:db8:1:2:3::4@tcp", 64), "2001:db8:1:2::/64@tcp");
  EXPECT_EQ(network("2001:db8:1:2:3::4@tcp", 65), "2001:db8:1:2::/65@tcp");
  EXPECT_EQ(network("2001:db8:1:2:ffff::4@tcp", 65), "2001:db8:1:2:8000::/65@tcp");
  EXPECT_EQ(network("17@gni", 8), "17@gni");
  for (unsigned length = 1; length <= 128; ++length) {
    const Nid nid = parse_nid("fe80:1:2:3:ffff:5:6:7@tcp").value().network(length);
    EXPECT_TRUE(NidList::parse(print_network(nid, length)).value().matches(nid)) << length;
    EXPECT_EQ(nid.network(length), nid) << length;
  }
}

TEST(Nid, RefusesWhatIsNotOneNid) {
  for (const char* text : {"",
                           "@",
                           "@tcp",
                           "1.2.3.4",
                           "1.2.3.4@",
                           "*@tcp",
                           "1.2.3.*@tcp",
                           "1.2.3.[4]@tcp",
                           "1.2.3.4/32@tcp",
                           "1.2.3.4@tcp 1.2.3.5@tcp",
                           "1.2.3.4@tcp ",
                           "::1/128@tcp",
                           "1:2@tcp",
                           ":::@tcp",
                           "1::2::3@tcp",
                           "1:2:3:4:5:6:7:8:9@tcp",
                           "1:2:3:4:5:6:7::8@lo",
                           "12345::@tcp",
                           "::g@tcp",
                           "1:@tcp",
                           ":1@tcp",
                           "::1.2.3@tcp",
                           "::1.2.3.256@tcp",
                           "::1.2.3.4:5@tcp",
                           "1:2:3:4:5:6:7:1.2.3.4@tcp",
                           "5@tcp",
                           "1.2.3.4@gni",
                           "::1@gni",
                           "4294967296@gni"}) {
    EXPECT_FALSE(parse_nid(text)) << text;
  }
}

struct Listed {
  const char* list;
  std::vector<const char*> in;
  std::vector<const char*> out;
};

TEST(NidList, MatchesAsOnALustreServer) {
  const Listed cases[] = {
      {"192.168.1.1@tcp", {"192.168.1.1@tcp", "192.168.1.1@tcp0"}, {"192.168.1.1@tcp1"}},
      {"192.168.1.[1-128]@tcp",
       {"192.168.1.1@tcp", "192.168.1.128@tcp"},
       {"192.168.1.129@tcp", "192.168.1.0@tcp", "192.168.2.1@tcp"}},
      {"192.168.*.*@tcp", {"192.168.0.0@tcp", "192.168.255.255@tcp"}, {"192.169.0.0@tcp"}},
      {"*.*.*.*@tcp", {"1.2.3.4@tcp"}, {"1.2.3.4@tcp1", "1.2.3.4@o2ib"}},
      {"*@tcp", {"1.2.3.4@tcp", "::1@tcp"}, {"1.2.3.4@tcp1"}},
      {"192.168.1.[*]@tcp", {"192.168.1.0@tcp", "192.168.1.255@tcp"}, {"192.168.2.0@tcp"}},
      {"192.168.1.[2,10,20-30/5]@tcp",
       {"192.168.1.2@tcp", "192.168.1.10@tcp", "192.168.1.20@tcp", "192.168.1.25@tcp",
        "192.168.1.30@tcp"},
       {"192.168.1.26@tcp", "192.168.1.3@tcp", "192.168.1.35@tcp"}},
      {"10.0.0.0/8@tcp", {"10.1.2.3@tcp"}, {"11.0.0.1@tcp"}},
      {"10.0.0.5/8@tcp", {"10.1.2.3@tcp"}, {"11.0.0.1@tcp"}},
      {"10.0.0.5/32@tcp", {"10.0.0.5@tcp"}, {"10.0.0.4@tcp"}},
      {"128.0.0.0/1@tcp", {"255.0.0.1@tcp"}, {"127.0.0.1@tcp"}},
      {"2001:db8::1@tcp", {"2001:db8::1@tcp"}, {"2001:db8::2@tcp", "32.1.13.184@tcp"}},
      {"2001:db8::/32@tcp",
       {"2001:db8:ffff::1@tcp", "2001:db8::@tcp"},
       {"2001:db9::1@tcp", "32.1.13.184@tcp"}},
      {"2001:db8::/65@tcp", {"2001:db8::7fff:0:0:1@tcp"}, {"2001:db8::8000:0:0:1@tcp"}},
      {"0@lo", {"0@lo"}, {"1@lo"}},
      {"5@lo", {"5@lo"}, {"0@lo"}},
      {"[0-7]@gni", {"0@gni", "7@gni"}, {"8@gni", "0@gni1"}},
      {"[0-100/7,1000000]@gni", {"0@gni", "98@gni", "1000000@gni"}, {"99@gni", "100@gni"}},
      {"*@gni", {"0@gni", "4294967295@gni"}, {"0@kfi"}},
      {"[*]@gni", {"0@gni", "4294967295@gni"}, {}},
      {"1@kfi", {"1@kfi"}, {"1@bxi3f"}},
      {"1@bxi3f", {"1@bxi3f"}, {"1@kfi"}},
      {"10.0.0.1@efa", {"10.0.0.1@efa"}, {"10.0.0.1@tcp"}},
      {"192.168.1.1@tcp 10.0.0.1@o2ib1 0@lo",
       {"192.168.1.1@tcp", "10.0.0.1@o2ib1", "0@lo"},
       {"10.0.0.1@o2ib", "10.0.0.1@tcp"}},
      {"  1.1.1.1@tcp   1.1.1.2@tcp  ", {"1.1.1.1@tcp", "1.1.1.2@tcp"}, {"1.1.1.3@tcp"}},
      {"192.168.1.1@tcp0x1", {"192.168.1.1@tcp1"}, {"192.168.1.1@tcp"}},
      {"192.168.1.010@tcp", {"192.168.1.8@tcp"}, {"192.168.1.10@tcp"}},
      {"0x0a.0.0.1@tcp", {"10.0.0.1@tcp"}, {}},
      {"[1-3].*.[4,5].6@tcp", {"2.200.5.6@tcp"}, {"4.200.5.6@tcp", "2.200.6.6@tcp"}},
      // On a Lustre server a prefix on these networks is accepted and never matches.
      {"10.0.0.0/8@efa", {"10.1.2.3@efa"}, {"11.0.0.1@efa"}},
      {"*.5.*.*@tcp", {"1.5.2.3@tcp"}, {"1.6.2.3@tcp"}},
  };
  for (const Listed& c : cases) {
    for (const char* in : c.in) EXPECT_TRUE(list(c.list).matches(nid(in))) << c.list << " " << in;
    for (const char* out : c.out) {
      EXPECT_FALSE(list(c.list).matches(nid(out))) << c.list << " " << out;
    }
    EXPECT_FALSE(list(c.list).matches(Nid{})) << c.list;
  }
}

TEST(NidList, AnIpv4RangeNeverMatchesAnIpv6Address) {
  // A Lustre server compares the first 32 bits of any address. 10.0.0.1 would be a00:1::.
  for (const char* text : {"10.0.0.1@tcp", "10.0.0.*@tcp", "10.0.0.0/8@tcp", "*.*.*.*@tcp",
                           "10.0.0.[1-3]@tcp", "0.0.0.[0-255]@tcp"}) {
    for (const char* address : {"a00:1::@tcp", "::a00:1@tcp", "::@tcp"}) {
      EXPECT_FALSE(list(text).matches(nid(address))) << text << " " << address;
    }
  }
  EXPECT_FALSE(list("::/1@tcp").matches(nid("0.0.0.0@tcp")));
}

TEST(NidList, RefusesWithThePlaceAndWhatWasExpected) {
  struct Case {
    const char* text;
    std::size_t column;
    const char* part;
  };
  const Case cases[] = {
      {"", 1, "an empty list"},
      {"   ", 1, "an empty list"},
      {"*.*@tcp", 1, "four parts"},
      {"192.168.1@tcp", 1, "four parts"},
      {"1.2.3.4.5@tcp", 1, "four parts"},
      {"192.168.1.2-10@tcp", 11, "write [2-10]"},
      {"192.168.1.[10-2]@tcp", 12, "smaller number first"},
      {"192.168.1.[1-300]@tcp", 12, "up to 255"},
      {"192.168.1.256@tcp", 11, "up to 255"},
      {"192.168.1.[]@tcp", 12, "not a valid list item"},
      {"192.168.1.[1,]@tcp", 14, "not a valid list item"},
      {"192.168.1.[2, 10]@tcp", 1, "no @"},
      {"192.168.1.[1-10/0]@tcp", 12, "stride of 0"},
      {"[0-5/0]@lo", 2, "stride of 0"},
      {"192.168.1.[1/2]@tcp", 12, "a stride but no range"},
      {"192.168.1.[1-2/3/4]@tcp", 12, "not a valid list item"},
      {"192.168.1.[1-2@tcp", 11, "no ]"},
      {"192.168.1.[@tcp", 11, "no ]"},
      {"10.0.0.0/33@tcp", 9, "/1 to /32"},
      {"10.0.0.0/0@tcp", 9, "/1 to /32"},
      {"10.0.0.0/@tcp", 9, "/1 to /32"},
      {"10.0.*.*/16@tcp", 6, "cannot be combined"},
      {"10.0.0.[1]/16@tcp", 8, "no ]"},
      {"2001:db8::/129@tcp", 11, "/1 to /128"},
      {"2001:db8::/0@tcp", 11, "/1 to /128"},
      {"2001:db8::[1-4]@tcp", 11, "IPv6"},
      {"1.1.1.1@tcp,1.1.1.2@tcp", 20, "separate NIDs with spaces"},
      {"192.168.1.1", 1, "no @"},
      {"1.1.1.1@tcp 192.168.1.1", 13, "no @"},
      {"@tcp", 1, "no address"},
      {"1.1.1.1@", 9, "not a network"},
      {"1.1.1.1@foo", 9, "not a network"},
      {"1.1.1.1@tcp@tcp", 12, "second network"},
      {"1.1.1.1@tcpx", 9, "not a network"},
      {"1.1.1.1@TCP", 9, "not a network"},
      {"1.1.1.1@tcp-1", 9, "not a network"},
      {"1.1.1.1@tcp99999999999", 9, "not a network"},
      {"host@tcp", 1, "four parts"},
      {"1@elan", 3, "not a network"},
      {"1.1.1.1@gni", 1, "not a valid part of an address"},
      {"[1-4294967296]@gni", 2, "up to 4294967295"},
      {"1.1.1.08@tcp", 7, "not a valid part of an address"},
      {"1..1.1@tcp", 3, "not a valid part of an address"},
  };
  for (const Case& c : cases) {
    const auto parsed = NidList::parse(c.text);
    ASSERT_FALSE(parsed) << c.text;
    EXPECT_EQ(parsed.error().code, std::errc::invalid_argument);
    EXPECT_EQ(parsed.error().where, "column " + std::to_string(c.column)) << c.text;
    EXPECT_NE(parsed.error().message().find(c.part), std::string::npos)
        << c.text << " gave " << parsed.error().message();
  }
}

TEST(NidList, IsKeptAsRangesHoweverMuchItStandsFor) {
  EXPECT_EQ(list("[*]@gni *.*.*.*@tcp ::/1@tcp").size(), 3U);
  std::string text;
  while (text.size() < 4000) text += "[0-255].[0-255].[0-255].[0-255/2]@tcp ";
  const NidList large = list(text);
  EXPECT_TRUE(large.matches(nid("1.2.3.4@tcp")));
  EXPECT_FALSE(large.matches(nid("1.2.3.5@tcp")));
}

// ---- against brute force: small ranges, expanded ----

struct Drawn {
  std::string text;
  std::set<std::uint32_t> members;  // of 10.0.x.y, as x * 256 + y
};

// Writes a part of an address, and collects the values it stands for by enumeration.
std::string any_part(Rng& rng, std::set<std::uint32_t>& values) {
  const auto number = [&] { return static_cast<std::uint32_t>(rng.below(256)); };
  const std::uint64_t kind = rng.below(4);
  if (kind == 0) {
    for (std::uint32_t v = 0; v < 256; ++v) values.insert(v);
    return "*";
  }
  if (kind == 1) {
    const std::uint32_t v = number();
    values.insert(v);
    return std::to_string(v);
  }
  std::string text = "[";
  for (std::uint64_t i = 0; i <= rng.below(3); ++i) {
    const std::uint32_t a = number();
    const std::uint32_t b = number();
    const std::uint32_t lo = std::min(a, b);
    const std::uint32_t hi = std::max(a, b);
    const auto stride = static_cast<std::uint32_t>(1 + rng.below(60));
    const bool strided = rng.chance(1, 2);
    for (std::uint32_t v = lo; v <= hi; v += strided ? stride : 1) values.insert(v);
    text += (text.size() > 1 ? "," : "") + std::to_string(lo) + "-" + std::to_string(hi);
    if (strided) text += "/" + std::to_string(stride);
  }
  return text + "]";
}

Drawn any_range(Rng& rng) {
  std::set<std::uint32_t> third;
  std::set<std::uint32_t> fourth;
  Drawn drawn;
  drawn.text = "10.0." + any_part(rng, third);
  drawn.text += "." + any_part(rng, fourth) + "@tcp";
  for (const std::uint32_t x : third) {
    for (const std::uint32_t y : fourth) drawn.members.insert(x * 256 + y);
  }
  return drawn;
}

// Empty if matching agrees with the expanded lists, otherwise the list.
std::string disagreement(const std::function<bool(const NidList&, const Nid&)>& matches) {
  Rng rng(3);
  for (int i = 0; i < 12; ++i) {
    Drawn all;
    for (std::uint64_t n = 0; n <= rng.below(3); ++n) {
      Drawn drawn = any_range(rng);
      all.text += drawn.text + " ";
      all.members.merge(drawn.members);
    }
    const NidList parsed = list(all.text);
    for (std::uint32_t low = 0; low < 65536; low += 1 + (low % 3)) {
      const Nid probe{0, 0x0a00'0000U + low, 0, NetType::kTcp, AddressFamily::kIpv4};
      if (matches(parsed, probe) != all.members.contains(low)) {
        return all.text + "~ " + print_nid(probe);
      }
    }
  }
  return {};
}

TEST(NidListProperty, AgreesWithExpandedLists) {
  EXPECT_EQ(disagreement([](const NidList& l, const Nid& n) { return l.matches(n); }), "");
}

TEST(NidListProperty, ExpandedListsCatchAMatcherThatIsOffByOne) {
  EXPECT_NE(disagreement([](const NidList& l, const Nid& n) {
              Nid next = n;
              ++next.low;
              return l.matches(next);
            }),
            "");
}

RC_GTEST_PROP(NidProperty, WhatIsPrintedReadsBackTheSame, ()) {
  Nid any;
  const NetType nets[] = {NetType::kTcp,  NetType::kO2ib, NetType::kGip,
                          NetType::kEfa,  NetType::kLo,   NetType::kGni,
                          NetType::kPtlf, NetType::kKfi,  NetType::kBxi3f};
  any.net = nets[*rc::gen::inRange(0, 9)];
  any.net_number = *rc::gen::arbitrary<std::uint32_t>();
  any.low = *rc::gen::arbitrary<std::uint32_t>();
  any.family = AddressFamily::kNumber;
  if (any.net <= NetType::kEfa) {
    any.family = *rc::gen::arbitrary<bool>() ? AddressFamily::kIpv4 : AddressFamily::kIpv6;
  }
  if (any.family == AddressFamily::kIpv6) {
    any.high = *rc::gen::arbitrary<std::uint64_t>();
    any.low = *rc::gen::arbitrary<std::uint64_t>() &
              *rc::gen::element<std::uint64_t>(0, UINT64_MAX, 0xffff, 0xffff'0000'ffff);
  }
  RC_ASSERT(parse_nid(print_nid(any)).value() == any);
  RC_ASSERT(list(print_nid(any)).matches(any));
}

}  // namespace
}  // namespace weir
