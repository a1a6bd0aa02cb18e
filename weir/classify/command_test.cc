// SPDX-License-Identifier: Apache-2.0
//
// The accept/reject table of running Lustre servers, the messages of refusals, and the intended
// differences of Weir.
#include "weir/classify/command.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"
#include "weir/base/units.h"
#include "weir/classify/mistake.h"

namespace weir {
namespace {

constexpr FieldSet kJobid{Field::kJobid};
constexpr FieldSet kNid{Field::kNid};
constexpr FieldSet kGeneric = FieldSet::generic();

std::optional<std::uint32_t> nodemap_tbf(std::string_view name) {
  if (name == "TBF") return 5;
  return default_nodemap_only(name);
}

RuleCommand parse(std::string_view text, FieldSet type) {
  auto command = parse_command(text, type, nodemap_tbf);
  EXPECT_TRUE(command) << text << ": " << (command ? "" : command.error().message());
  return command ? std::move(*command) : RuleCommand{};
}

// "OK" or the name of the errno.
std::string outcome(std::string_view text, FieldSet type) {
  const auto command = parse_command(text, type, nodemap_tbf);
  if (command) return "OK";
  if (command.error().code == std::errc::invalid_argument) return "EINVAL";
  if (command.error().code == std::errc::filename_too_long) return "ENAMETOOLONG";
  return "other";
}

// ---- fields of Weir ----

TEST(Command, AnyTypeMayTestTheExport) {
  for (const FieldSet type : {kJobid, kNid, kGeneric}) {
    const RuleCommand command = parse("start home export={/home /srv*} rate=10", type);
    Attributes attributes;
    const auto matches = [&](std::string_view name) {
      attributes.export_name = export_name(name);
      return command.conditions.matches(attributes);
    };
    EXPECT_TRUE(matches("/home"));
    EXPECT_TRUE(matches("/srv/data"));
    EXPECT_FALSE(matches("/homes"));
    EXPECT_FALSE(matches(""));
    EXPECT_EQ(command.conditions.own_fields(), FieldSet{Field::kExport});
  }
  EXPECT_EQ(parse("start j jobid={a} rate=1", kJobid).conditions.own_fields(), FieldSet{});
}

TEST(Command, TheNameOfAnExportMayBeLong) {
  const std::string name = "/pool/department/projects/alpha/and/more";
  const RuleCommand command = parse("start long export={" + name + "} rate=10", kGeneric);
  Attributes attributes;
  attributes.export_name = export_name(name);
  EXPECT_TRUE(command.conditions.matches(attributes));
  attributes.export_name = export_name(name + "2");
  EXPECT_FALSE(command.conditions.matches(attributes));
}

TEST(Command, ASubnetIsAKeyAndNoCondition) {
  EXPECT_EQ(parse("start n nid={*@tcp} by=subnet/24", kNid).keys.by, FieldSet::subnet(24));
  EXPECT_EQ(parse("start n nid={*@tcp} by=uid+export", kNid).keys.by,
            (FieldSet{Field::kUid, Field::kExport}));
  EXPECT_EQ(parse_command("start n subnet={10.0.0.0/24@tcp} rate=1", kGeneric).error().message(),
            "column 9: 'subnet={10.0.0.0/24@tcp}' tests a subnet; write it as "
            "nid={10.1.2.0/24@tcp}");
}

// ---- the table, as executed on 2.17.57 with the type jobid ----

TEST(Command, AcceptsWhatALustreServerAccepts) {
  EXPECT_EQ(parse("start dd jobid={dd.0} rate=100", kJobid).keys.rate, 100U);
  EXPECT_EQ(parse("start dd jobid={dd.0}", kJobid).keys.rate, std::nullopt);
  for (const char* text : {
           "start dd jobid={dd.0} ",
           "start dd jobid={dd.0} rate=100 ",
           "start dd  jobid={dd.0} rate=1",
           "start dd jobid = {dd.0} rate=1",
           "start dd jobid={a b  c } rate=5",
           "start dd jobid={a},jobid={b} rate=5",
           "start dd jobid={a=b} rate=5",
           "start dd jobid={a}&jobid={b} rate=5",
           "start dd jobid={a}b} rate=5",
           "start dd jobid={a} rate=999999",
           "start dd jobid={a} realtime=0",
           "start dd jobid={*.500},jobid={fio.*}&jobid={*.1}",
           "start name_of_15_char jobid={a} rate=1",
           "start _ jobid={a} rate=1",
           "start 9 jobid={a} rate=1",
           "start dd jobid={a} rank=nosuch rate=5",
           "stop dd",
           "stop dd ",
           "stop dd realtime=1",
           "change dd rate=5",
           "change dd rank=x",
           "change dd rate=12 rank=nosuch",
           "change dd rate=5 realtime=1",
           "hp start hponly jobid={a} rate=3",
           "hp stop hponly",
           "reg change dd rate=5",
       }) {
    EXPECT_EQ(outcome(text, kJobid), "OK") << text;
  }
  EXPECT_EQ(parse("start dd jobid={a} rate=+7", kJobid).keys.rate, 7U);
  EXPECT_EQ(parse("start dd jobid={a} rate=10\n", kJobid).keys.rate, 10U);
  EXPECT_EQ(parse("start dd jobid={a} rate=10 rate=20", kJobid).keys.rate, 20U);
  EXPECT_EQ(parse("start dd jobid={a} realtime=2", kJobid).keys.realtime, true);
  EXPECT_EQ(parse("start dd jobid={a} realtime=1\n", kJobid).keys.realtime, true);
  EXPECT_EQ(parse("start dd jobid={a} rate=007", kJobid).keys.rate, 7U);
}

TEST(Command, RefusesWhatALustreServerRefuses) {
  for (const char* text : {
           "start  dd jobid={dd.0} rate=100",
           "start dd jobid={dd.0} rate=100  rank=default",
           "start dd jobid={dd.0}  rate=100",
           "start dd {dd.0} rate=1",
           "start dd jobid={dd.0}rate=1",
           "start dd jobid={} rate=1",
           "start dd jobid={ } rate=1",
           "start dd jobid={a,b} rate=1",
           "start dd jobid={a}& rate=1",
           "start dd ,jobid={a} rate=1",
           "start dd jobid={a},,jobid={b} rate=1",
           "start dd jobid={a}&&jobid={b} rate=1",
           "start dd jobid=a} rate=1",
           "start dd jobid={a rate=1",
           "start dd jobid{a} rate=1",
           "start dd uid={1} rate=1",
           "start dd foo={1} rate=1",
           "start dd jobid={a} rate=0",
           "start dd jobid={a} rate=1000000",
           "start dd jobid={a} rate=-1",
           "start dd jobid={a} rate=1.5",
           "start dd jobid={a} rate=x",
           "start dd jobid={a} rate=",
           "start dd jobid={a} rate",
           "start dd jobid={a} rate=10\n\n",
           "start dd jobid={a} rate=99999999999999999999",
           "start dd jobid={a} rank=",
           "start dd jobid={a} rank=bad-name",
           "start dd jobid={a} rank=name_longer_than_15",
           "start dd jobid={a} rank=x\n",
           "start dd jobid={a} realtime=x",
           "start dd jobid={a} realtime=-1",
           "start dd jobid={a} foo=1",
           "start dd jobid={a}\n",
           "start dd jobid={a}\nrate=5",
           "start na.me jobid={a} rate=1",
           "start na-me jobid={a} rate=1",
           "start na@me jobid={a} rate=1",
           "start",
           "start ",
           "start dd",
           "start dd ",
           "change dd",
           "change dd ",
           "change dd realtime=1",
           "change dd rate=0",
           "change dd rate=5  rank=x",
           "stop",
           "stop ",
           "stop dd rate=5",
           "stop dd rank=x",
           "stop dd\n",
           "START dd jobid={a} rate=1",
           "reg",
           "reg ",
           "hp hp stop dd",
           "list",
           "clear",
           "",
           " ",
           " start dd jobid={a}",
       }) {
    EXPECT_EQ(outcome(text, kJobid), "EINVAL") << text;
  }
  EXPECT_EQ(outcome("start name_of_16_char_ jobid={a} rate=1", kJobid), "ENAMETOOLONG");
  EXPECT_EQ(outcome("stop name_of_16_char_", kJobid), "ENAMETOOLONG");
  EXPECT_EQ(outcome("change name_of_16_char_ rate=1", kJobid), "ENAMETOOLONG");
}

TEST(Command, OfOtherTypes) {
  const auto type = [](std::string_view text) { return FieldSet::parse_type(text).value(); };
  for (const char* text : {
           "start dd jobid={dd.500}&opcode={ost_write} rate=20",
           "start dd nid={0@lo 10.0.2.15@tcp}&opcode={ost_write ost_read} rate=20",
           "start dd uid={500},opcode={ost_write} rate=2",
           "start dd uid={0x10 010 +7} rate=1",
           "start dd uid={4294967295} rate=1",
           "start dd projid={100} rate=1",
           "start dd nodemap={default} rate=1",
           "start dd nid={10.0.0.[1-3]@tcp 10.1.0.0/16@tcp} rate=1",
           "start dd opcode={mds_getattr_lock ldlm_enqueue obd_ping} rate=20",
       }) {
    EXPECT_EQ(outcome(text, kGeneric), "OK") << text;
  }
  for (const char* text : {
           "start dd opcode={ost_foo} rate=1",
           "start dd opcode={3} rate=1",
           "start dd uid={abc} rate=1",
           "start dd uid={-1} rate=1",
           "start dd uid={0x} rate=1",
           "start dd uid={1.5} rate=1",
           "start dd nodemap={nosuch} rate=1",
           "start dd gid{500} rate=1",
           "start dd nid={10.0.0.1@tcp,10.0.0.2@tcp} rate=1",
       }) {
    EXPECT_EQ(outcome(text, kGeneric), "EINVAL") << text;
  }
  EXPECT_EQ(outcome("start dd nid={*@tcp} rate=1", kNid), "OK");
  EXPECT_EQ(outcome("start dd nid={2001:db8::/32@tcp} rate=1", kNid), "OK");
  EXPECT_EQ(outcome("start dd nid={host@tcp} rate=1", kNid), "EINVAL");
  EXPECT_EQ(outcome("start dd jobid={a} rate=1", kNid), "EINVAL");
  EXPECT_EQ(outcome("start dd {0@lo} rate=1", kNid), "EINVAL");
  EXPECT_EQ(outcome("start dd projid={1}&opcode={ost_write} rate=2", type("jobid+opcode")),
            "EINVAL");
  EXPECT_EQ(outcome("start dd jobid={a},opcode={ost_write} rate=2", type("jobid+opcode")), "OK");
}

// ---- what Weir changes on purpose (docs/design/rules.md) ----

TEST(Command, ReadsTheFormsBeforeTwoPointEight) {
  // Section 3 of the design document of 2013, word for word.
  const auto start = [](std::string_view text) { return parse(text, kNid); };
  EXPECT_EQ(start("start loginnode {192.168.1.1@tcp} 10000").keys.rate, 10'000U);
  EXPECT_EQ(start("reg start loginnode {192.168.1.1@tcp} 10000").heads, Heads::kRegular);
  EXPECT_EQ(start("hp start loginnode {192.168.1.1@tcp} 10000").heads, Heads::kHigh);
  EXPECT_EQ(start("start computenodes {192.168.1.[1-128]@tcp} 1000").conds,
            "{192.168.1.[1-128]@tcp}");
  EXPECT_EQ(start("start other_clients {192.168.*.*@tcp} 100").keys.rate, 100U);
  EXPECT_EQ(start("change loginnode 1000").keys.rate, 1000U);
  EXPECT_EQ(start("reg change loginnode 1000").verb, Verb::kChange);
  EXPECT_EQ(start("hp change loginnode 1000").heads, Heads::kHigh);
  EXPECT_EQ(start("stop loginnode").verb, Verb::kStop);
  EXPECT_EQ(start("reg stop loginnode").heads, Heads::kRegular);
  EXPECT_EQ(start("hp stop loginnode").heads, Heads::kHigh);
  Attributes node;
  node.nid = parse_nid("192.168.1.128@tcp").value();
  EXPECT_TRUE(start("start c {192.168.1.[1-128]@tcp} 1").conditions.matches(node));
  EXPECT_TRUE(start("start c {192.168.1.[1,128]@tcp 0@lo} 1 ").conditions.matches(node));

  EXPECT_EQ(outcome("start dd {dd.0 cp.*} 100", kJobid), "OK");
  EXPECT_EQ(outcome("start dd {dd.0} 100\n", kJobid), "OK");
  EXPECT_EQ(outcome("change dd 5", kJobid), "OK");
  for (const char* text :
       {"start dd {dd.0}", "start dd {dd.0} ", "start dd {dd.0} 0", "start dd {dd.0} 1000000",
        "start dd {dd.0} 5 rank=x", "start dd {dd.0}  5", "start dd {dd.0}5", "start dd {} 5",
        "start dd {a,b} 5", "start dd {a&b} 5", "start dd {a},{b} 5", "change dd 0", "change dd x",
        "change dd 5 6"}) {
    EXPECT_EQ(outcome(text, kJobid), "EINVAL") << text;
  }
  for (const FieldSet type : {kGeneric, FieldSet{Field::kUid, Field::kGid}}) {
    EXPECT_EQ(outcome("start dd {5} 100", type), "EINVAL");
    EXPECT_EQ(outcome("change dd 5", type), "EINVAL");
  }
}

TEST(Command, RefusesABraceThatSwallowsAKey) {
  for (const char* text :
       {"start dd jobid={dd.0} rate=100}", "start dd jobid={dd.0}  rate=100}",
        "start dd jobid={dd.0}rate=100}", "start dd jobid={a} rank=x}",
        "start dd jobid={a} bps=1MiB rate=5}", "start dd jobid={a},jobid={b} rate=100}"}) {
    EXPECT_EQ(outcome(text, kJobid), "EINVAL") << text;
  }
  // These are unambiguous.
  EXPECT_EQ(outcome("start dd jobid={rate=100} rate=1", kJobid), "OK");
  EXPECT_EQ(outcome("start dd jobid={a} b} rate=1", kJobid), "OK");
}

TEST(Command, AcceptsCommasInsideTheBracketsOfNids) {
  for (const FieldSet type : {kNid, kGeneric}) {
    const RuleCommand command =
        parse("start dd nid={10.0.0.[1,3]@tcp},nid={10.[0,7].0.9@tcp 5@lo} rate=1", type);
    EXPECT_EQ(command.conditions.conjunctions().size(), 2U);
    const auto matches = [&](const char* nid) {
      Attributes attributes;
      attributes.nid = parse_nid(nid).value();
      return command.conditions.matches(attributes);
    };
    EXPECT_TRUE(matches("10.0.0.3@tcp"));
    EXPECT_TRUE(matches("10.7.0.9@tcp"));
    EXPECT_TRUE(matches("5@lo"));
    EXPECT_FALSE(matches("10.0.0.2@tcp"));
  }
  EXPECT_EQ(outcome("start dd nid={10.0.0.[1,3@tcp},nid={0@lo} rate=1", kGeneric), "EINVAL");
  EXPECT_EQ(outcome("start dd nid={10.0.0.[1,3} rate=1", kGeneric), "EINVAL");
  EXPECT_EQ(outcome("start dd nid={10.0.0.[1-3/0]@tcp} rate=1", kGeneric), "EINVAL");
  EXPECT_EQ(outcome("start dd nid={10.0.0.[1&3]@tcp} rate=1", kGeneric), "EINVAL");
  // Job ids have no brackets.
  EXPECT_EQ(outcome("start dd jobid={a[1,2]} rate=1", kGeneric), "EINVAL");
}

TEST(Command, RefusesIdsOverThirtyTwoBits) {
  for (const char* field : {"uid", "gid", "projid"}) {
    const std::string text = std::string("start dd ") + field + "={4294967296} rate=1";
    EXPECT_EQ(outcome(text, kGeneric), "EINVAL") << text;
  }
}

TEST(Command, ReadsTheNewKeys) {
  const auto keys = [](std::string_view text) {
    return parse("start dd jobid={a} " + std::string(text), kJobid).keys;
  };
  EXPECT_EQ(keys("bps=10MiB").bps, Rate::per_second(10 << 20));
  EXPECT_EQ(keys("bps=10MiB/s").bps, Rate::per_second(10 << 20));
  EXPECT_EQ(keys("bps=1GB/d").bps, parse_bandwidth("1GB/d").value());
  EXPECT_EQ(keys("burst=9").burst_ops, Tokens{9});
  EXPECT_EQ(keys("burst=20k").burst_ops, Tokens{20'000});
  EXPECT_EQ(keys("bps=1MB burst=4KiB").burst_bytes, Bytes{4096});
  EXPECT_EQ(keys("bps=1MB rate=5 burst=4KiB burst=7 burst=8").burst_bytes, Bytes{4096});
  EXPECT_EQ(keys("bps=1MB rate=5 burst=4KiB burst=7 burst=8").burst_ops, Tokens{8});
  EXPECT_EQ(keys("by=rule").by, FieldSet{});
  EXPECT_EQ(keys("by=uid+nid").by, (FieldSet{Field::kNid, Field::kUid}));
  EXPECT_EQ(keys("by=jobid+nid+opcode+uid+gid+projid+nodemap").by, FieldSet::generic());
  EXPECT_EQ(keys("layer=0").layer, 0);
  EXPECT_EQ(keys("layer=3").layer, 3);
  EXPECT_EQ(keys("cost=op").cost, Cost::op());
  EXPECT_EQ(keys("cost=bytes").cost, Cost::bytes());
  EXPECT_EQ(keys("cost=affine:1:20").cost, Cost::affine(1, 20));
  EXPECT_EQ(keys("scope=cluster").scope, Scope::kCluster);
  EXPECT_EQ(keys("scope=local").scope, Scope::kLocal);
  for (const char* text : {"bps=",
                           "bps=5",
                           "bps=0MiB",
                           "bps=x",
                           "bps=10MiB/s\n",
                           "burst=0",
                           "burst=0KiB",
                           "burst=x",
                           "burst=-1",
                           "burst=2000000000",
                           "burst=4KiB",
                           "burst=4KiB rate=5",
                           "bps=1MiB burst=9",
                           "bps=1B/d burst=1PiB",
                           "by=",
                           "by=all",
                           "by=uid++gid",
                           "by=uid+",
                           "by=rule+uid",
                           "layer=4",
                           "layer=-1",
                           "layer=00",
                           "layer=",
                           "cost=",
                           "cost=ops",
                           "cost=affine",
                           "cost=affine:1",
                           "cost=affine:0:0",
                           "cost=affine:-1:1",
                           "cost=affine:1:4294967296",
                           "cost=affine:1:2:3",
                           "scope=",
                           "scope=global"}) {
    EXPECT_EQ(outcome("start dd jobid={a} " + std::string(text), kJobid), "EINVAL") << text;
  }
  for (const char* key : {"bps=1MiB", "burst=9", "by=rule", "layer=1", "cost=op", "scope=local"}) {
    EXPECT_EQ(outcome("change dd " + std::string(key), kJobid), "OK") << key;
    EXPECT_EQ(outcome("stop dd " + std::string(key), kJobid), "EINVAL") << key;
  }
}

TEST(Command, SaysAtWhichColumnAndWhatWasExpected) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"strat dd", "column 1: 'strat' is not a verb; expected start, change or stop"},
      {"reg", "column 4: no verb; expected start, change or stop"},
      {"start", "column 6: no rule name; expected a space and the name of a rule"},
      {"start  dd jobid={a}",
       "column 7: an empty name; expected 1 to 15 letters, digits and underscores"},
      {"start d.d jobid={a}",
       "column 8: '.' in the name 'd.d'; expected 1 to 15 letters, digits and underscores"},
      {"start name_of_16_char_ jobid={a}", "column 22: the name has 16 bytes; the maximum is 15"},
      {"start dd rate=5",
       "column 10: no conditions in braces; expected FIELD={LIST} such as jobid={dd.* cp.0}"},
      {"start dd opcode={ost_read ost_foo}",
       "column 27: 'ost_foo' is not an opcode; expected a wire name such as ost_read"},
      {"start dd uid={5 x}",
       "column 17: 'x' is not a valid uid; expected a number from 0 to 4294967295"},
      {"start dd nid={0@lo 1.2.3.[4-300]@tcp}",
       "column 27: '4-300' is not a valid list item; expected numbers up to 255: N, LOW-HIGH or "
       "LOW-HIGH/STRIDE"},
      {"start dd jobid={dd.0} rate=100}",
       "column 31: an extra '}' that makes 'rate=100' an item of the list; remove it"},
      {"start dd jobid={a}rate=5",
       "column 19: 'rate=5' directly after the conditions; separate them with one space"},
      {"start dd jobid={a} rate=0",
       "column 25: '0' is not a valid rate; expected a whole number of operations per second from "
       "1 to "
       "999999"},
      {"start dd jobid={a} bps=1MiB burst=9",
       "column 35: a burst in tokens requires rate; add rate=, or give the burst "
       "a unit such as burst=1MiB"},
      {"change dd by=uid+gdi",
       "column 18: 'gdi' is not a field; expected by=rule, or fields joined with '+' such as "
       "by=uid+nid"},
      {"change dd 5", "column 11: '5' is a rate without 'rate='; write rate=5"},
  };
  for (const Case& c : cases) {
    const auto command = parse_command(c.text, kGeneric);
    ASSERT_FALSE(command) << c.text;
    EXPECT_EQ(command.error().message(), c.message) << c.text;
    const std::string column = "column " + std::to_string(column_of(command.error()).value());
    EXPECT_TRUE(std::string_view(c.message).starts_with(column + ":"));
  }
}

// ---- hostile input ----

TEST(Command, IsBounded) {
  const auto of_size = [](std::size_t size) {
    std::string text = "start dd jobid={";
    text += std::string(size - text.size() - 1, 'x');
    return text + "}";
  };
  EXPECT_EQ(outcome(of_size(4095), kJobid), "OK");
  EXPECT_EQ(outcome(of_size(4096), kJobid), "EINVAL");
  EXPECT_EQ(parse_command(of_size(4096), kJobid).error().message(),
            "column 4096: the command is longer than 4095 bytes; write several rules");
  EXPECT_EQ(outcome(of_size(10'000'000), kJobid), "EINVAL");
}

TEST(Command, RefusesBytesThatNoNameOrListHolds) {
  using namespace std::string_view_literals;
  EXPECT_EQ(outcome("start dd jobid={a\0b} rate=1"sv, kJobid), "EINVAL");
  EXPECT_EQ(outcome("start dd jobid={a} rate=1\0"sv, kJobid), "EINVAL");
  EXPECT_EQ(parse_command("stop d\0d"sv, kJobid).error().message(),
            "column 7: the command contains a NUL byte; expected text");
  EXPECT_EQ(outcome("start d\xc3\xa4 jobid={a} rate=1", kJobid), "EINVAL");
  EXPECT_EQ(outcome("start dd jobid={a\tb} rate=1", kJobid), "EINVAL");
  EXPECT_EQ(outcome("start dd jobid={a\n} rate=1", kJobid), "EINVAL");
  EXPECT_EQ(outcome("start dd uid={\xd9\xa1} rate=1", kGeneric), "EINVAL");
  EXPECT_EQ(outcome("start dd jobid={a} r\xc3\xa4te=1", kJobid), "EINVAL");
  // A job may have such a name, and does on Lustre servers.
  const RuleCommand command = parse("start dd jobid={uml\xc3\xa4ut} rate=1", kJobid);
  Attributes attributes;
  attributes.job = JobId("uml\xc3\xa4ut");
  EXPECT_TRUE(command.conditions.matches(attributes));
}

// ---- upstream's own tests ----

TEST(Command, ReadsWhatUpstreamTestsWrite) {
  struct Case {
    const char* type;
    std::vector<const char*> commands;
  };
  const Case cases[] = {
      {"nid",
       {"start localhost nid={0@lo} rate=1000", "start clients nid={10.0.0.1@tcp 0@lo} rate=100",
        "start others nid={*.*.*.*@tcp} rate=50", "change localhost rate=1001",
        "change clients rate=101", "change others rate=51", "stop localhost"}},
      {"jobid",
       {"start runas jobid={iozone.500 dd.500 tiotest.500} rate=1000",
        "start iozone_runas jobid={iozone.500} rate=100", "start dd_runas jobid={dd.500} rate=50",
        "change runas rate=1001", "change iozone_runas rate=101", "stop dd_runas"}},
      {"opcode",
       {"start ost_r opcode={ost_read} rate=5", "start ost_w opcode={ost_write} rate=20"}},
      {"uid", {"start ost_uid uid={500} rate=5"}},
      {"gid", {"start ost_gid gid={500} rate=5"}},
      {"generic",
       {"start ext_w jobid={dd.500}&opcode={ost_write} rate=20",
        "start ext_r jobid={dd.500}&opcode={ost_read} rate=10",
        "start ext_w nid={0@lo 10.0.0.1@tcp}&opcode={ost_write} rate=20",
        "start ext nid={0@lo}&jobid={dd.500} rate=20",
        "start ext_a jobid={dd.500},opcode={ost_write} rate=20",
        "start ext_b jobid={dd.500},opcode={ost_read} rate=10",
        "start ext_ug uid={500}&gid={500} rate=5", "start ext_uo uid={500},opcode={ost_write}",
        "start rule1 uid={500 502 } rate=1000", "start rule2 nid={10.10.2.20@tcp} rate=1000",
        "start rule3 jobid={cat.0.0} rate=1000", "start rule4 jobid={fio.0.0} rate=500",
        "change rule4 rate=50", "change rule4 rate=5000"}},
      {"jobid+opcode", {"start ext_w jobid={dd.500}&opcode={ost_write} rate=20"}},
      {"nid+opcode", {"start ext_w nid={0@lo}&opcode={ost_write} rate=20"}},
      {"nid+jobid", {"start ext nid={0@lo}&jobid={dd.500} rate=20"}},
      {"uid+gid", {"start ext_ug uid={500}&gid={500} rate=5"}},
      {"uid+opcode", {"start ext_uo uid={500}&opcode={ost_write} rate=20"}},
      {"projid", {"start ext_proj_rw projid={100} rate=20"}},
      {"projid+opcode",
       {"start ext_w projid={100}&opcode={ost_write} rate=20",
        "start ext_r projid={100}&opcode={ost_read} rate=10"}},
      {"nodemap", {"start ext_nm_rw nodemap={TBF} rate=20"}},
      {"nodemap+opcode", {"start ext_nm_w nodemap={TBF}&opcode={ost_write} rate=20"}},
  };
  for (const Case& c : cases) {
    for (const char* text : c.commands) {
      EXPECT_EQ(outcome(text, FieldSet::parse_type(c.type).value()), "OK") << text;
    }
  }
  EXPECT_FALSE(parse_command("start ext_nm_rw nodemap={TBF} rate=20", {Field::kNodemap}));
}

// ---- properties ----

// A command as a server lists it, written again.
std::string command_of(const RuleCommand& command) {
  std::string text = "start " + command.name + " " + command.conds;
  if (command.keys.rate) text += " rate=" + std::to_string(*command.keys.rate);
  return text;
}

// Empty if a command, printed by `list`, is parsed as the same command and both match every job
// that is literally an item; otherwise the error.
template <class List>
std::string read_back_fault(const RuleCommand& first, const std::vector<std::string>& items,
                            List list) {
  const auto second = parse_command(list(first), kGeneric);
  if (!second) return second.error().message();
  if (second->conds != first.conds) return "other conditions";
  if (second->keys.rate != first.keys.rate) return "another rate";
  for (const std::string& item : items) {
    if (item.size() > JobId::kSizeMax) continue;
    Attributes attributes;
    attributes.job = JobId(item);
    attributes.uid = 16;
    if (!first.conditions.matches(attributes)) return "the first does not fit " + item;
    if (!second->conditions.matches(attributes)) return "the second does not fit " + item;
  }
  return {};
}

RC_GTEST_PROP(CommandProperty, WhatIsListedReadsBackTheSame, ()) {
  // Any bytes that a list may contain, between existing fields.
  const auto item = rc::gen::nonEmpty(rc::gen::container<std::string>(
      rc::gen::elementOf(std::string("abAB01.*_-@:=[]{}?/\\\"'<>|~%#!;\xc3\xa4"))));
  const auto items = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(item));
  std::string conds = *rc::gen::element<std::string>("jobid={", "  jobid = { ");
  for (const std::string& one : items) conds += one + *rc::gen::element<std::string>(" ", "  ");
  conds += *rc::gen::element<std::string>("}", "},jobid={x*}", "}&uid={5 0x10},jobid={y}");
  const std::string text = "start dd " + conds + " rate=" + std::to_string(*rc::gen::inRange(1, 9));
  const auto first = parse_command(text, kGeneric);
  RC_PRE(first.has_value());
  RC_ASSERT(read_back_fault(*first, items, command_of) == "");
}

TEST(CommandProperty, AListingThatLosesSomethingIsCaught) {
  const RuleCommand command = parse("start dd jobid={a  b}&uid={16},jobid={c} rate=5", kGeneric);
  const std::vector<std::string> items = {"a", "b", "c"};
  EXPECT_EQ(read_back_fault(command, items, command_of), "");
  const auto without_rate = [](const RuleCommand& whole) {
    return "start " + whole.name + " " + whole.conds;
  };
  EXPECT_EQ(read_back_fault(command, items, without_rate), "another rate");
  const auto one_blank = [](const RuleCommand& whole) {
    std::string text = command_of(whole);
    return text.erase(text.find("  "), 1);
  };
  EXPECT_EQ(read_back_fault(command, items, one_blank), "other conditions");
  const auto first_half = [](const RuleCommand& whole) { return command_of(whole).substr(0, 20); };
  EXPECT_NE(read_back_fault(command, items, first_half), "");
  EXPECT_EQ(read_back_fault(command, {"a", "d"}, command_of), "the first does not fit d");
}

// Empty if `parse` accepted the text, or rejected it with a hint and a column inside or directly
// after the text.
template <class Parse>
std::string refusal_fault(const std::string& text, Parse parse) {
  const auto command = parse(text);
  if (command) return {};
  const auto column = column_of(command.error());
  if (!column) return "no column";
  if (*column < 1 || *column > text.size() + 1) return "a column outside the text";
  return command.error().hint.empty() ? "no hint" : "";
}

TEST(CommandProperty, NoTextCrashesAndEveryMistakeHasAColumnInTheText) {
  Rng rng(11);
  const std::vector<std::string> parts = {"start ",
                                          "change ",
                                          "stop ",
                                          "reg ",
                                          "hp ",
                                          "dd ",
                                          "jobid=",
                                          "nid=",
                                          "uid=",
                                          "{",
                                          "}",
                                          "dd.*",
                                          "0@lo",
                                          "10.0.0.[1,2-8/3]@tcp",
                                          " ",
                                          ",",
                                          "&",
                                          "=",
                                          "rate=5",
                                          "rank=dd",
                                          "bps=1MiB",
                                          "burst=3",
                                          "by=uid+nid",
                                          "layer=1",
                                          "cost=affine:1:2",
                                          "500",
                                          "\n",
                                          "[",
                                          "]",
                                          "*"};
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::uint64_t n = 0; n <= rng.below(12); ++n) text += parts[rng.below(parts.size())];
    const FieldSet type = rng.chance(1, 2) ? kGeneric : kNid;
    const auto fault = refusal_fault(text, [&](const std::string& whole) {
      auto command = parse_command(whole, type);
      accepted += command ? 1 : 0;
      return command;
    });
    ASSERT_EQ(fault, "") << text;
  }
  EXPECT_GT(accepted, 20);
}

TEST(CommandProperty, ARefusalWithoutAPlaceInTheTextIsCaught) {
  const std::string text = "start dd jobid=x";
  const auto refusal = [&](std::size_t at, const char* hint) {
    return refusal_fault(text, [&](const std::string&) -> Result<RuleCommand> {
      return tl::unexpected(Mistake{at, "wrong", hint}.to_error());
    });
  };
  EXPECT_EQ(refusal(text.size(), "expected text"), "");
  EXPECT_EQ(refusal(text.size() + 1, "expected text"), "a column outside the text");
  EXPECT_EQ(refusal(0, ""), "no hint");
  EXPECT_EQ(refusal_fault(text,
                          [](const std::string&) -> Result<RuleCommand> {
                            return fail(std::errc::invalid_argument, "rule", "wrong", "write less");
                          }),
            "no column");
}

TEST(Command, AValueWithABadNameIsRefusedAsItsTextWouldBe) {
  for (const std::string name : {"", "a b", "a\n", "sixteen_letters_", "a realtime=1"}) {
    const auto bound = bind(stop_of(name), FieldSet::generic());
    ASSERT_FALSE(bound) << name;
    const bool is_long = name.size() == 16;
    EXPECT_EQ(bound.error().code,
              is_long ? std::errc::filename_too_long : std::errc::invalid_argument);
  }
  EXPECT_TRUE(bind(stop_of("fifteen_letters"), FieldSet::generic()));
}

}  // namespace
}  // namespace weir
