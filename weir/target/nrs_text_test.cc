// SPDX-License-Identifier: Apache-2.0
#include "weir/target/nrs_text.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/ring.h"
#include "weir/schedule/policy_kinds.h"

namespace weir {
namespace {

const TunableName kQuantum{"crrn", "quantum"};

constexpr const char* kHead =
    "  - name: fifo\n"
    "    state: started\n"
    "    fallback: yes\n"
    "    queued: 0                   \n"
    "    active: 0                   \n"
    "\n";

TEST(NrsText, ListsPoliciesByteForByte) {
  Target target({}, {});
  std::string stopped;
  for (const char* name : {"crrn", "tbf"}) {
    stopped += std::string("  - name: ") + name +
               "\n    state: stopped\n    fallback: no\n"
               "    queued: 0                   \n    active: 0                   \n\n";
  }
  EXPECT_EQ(read_nrs_policies(target), "\nregular_requests:\n" + (kHead + stopped) +
                                           "high_priority_requests:\n" + kHead + stopped);
}

// A policy with tunables that a program has added.
class Tuned final : public Policy {
 public:
  std::string_view name() const override { return "tuned"; }
  void admit(Request& request, Instant /*now*/) override { requests_.push_back(request); }
  Pick pick(Instant /*now*/, Urge /*urge*/) override {
    if (requests_.empty()) return {};
    Request& first = requests_.front();
    requests_.erase(first);
    return {.request = &first};
  }
  void remove(Request& request, Instant /*now*/) override { requests_.erase(request); }
  std::optional<std::uint64_t> tunable(std::string_view name) const override {
    return name == "near" ? near_ : far_;
  }
  void set_tunable(std::string_view name, std::uint64_t value) override {
    (name == "near" ? near_ : far_) = value;
  }

 private:
  Ring<Request, &Request::policy_ring> requests_;
  std::uint64_t near_ = 1;
  std::uint64_t far_ = 2;
};

// Once for all tests of this program: registered policies stay.
void add_tuned() {
  static const bool added =
      add_policy({.name = "tuned",
                  .help = "for tests",
                  .tunables = {{.name = "near", .least = 0, .most = 9, .help = "small"},
                               {.name = "far", .help = "any"}},
                  .make = [](std::string_view, const PolicySetup&) -> Result<PolicyKind::Pair> {
                    return PolicyKind::Pair{std::make_unique<Tuned>(), std::make_unique<Tuned>()};
                  }})
          .has_value();
  ASSERT_TRUE(added);
}

TEST(NrsTunables, OfEveryRegisteredPolicyAreReadAndWritten) {
  add_tuned();
  std::vector<std::string> leaves;
  for (const TunableName& name : nrs_tunables()) leaves.push_back(name.leaf());
  EXPECT_EQ(leaves,
            (std::vector<std::string>{"nrs_crrn_quantum", "nrs_tuned_near", "nrs_tuned_far"}));
  Target target({}, {});
  const TunableName near{"tuned", "near"}, far{"tuned", "far"};
  EXPECT_EQ(write_nrs_tunable(target, near, "5", {}).error().code, std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(target, "tuned", {}));
  EXPECT_EQ(*read_nrs_tunable(target, near), "reg_near:1\nhp_near:1\n");
  ASSERT_TRUE(write_nrs_tunable(target, near, "hp_near:0\n", {}));
  EXPECT_EQ(*read_nrs_tunable(target, near), "reg_near:1\nhp_near:0\n");
  ASSERT_TRUE(write_nrs_tunable(target, far, "18446744073709551615", {}));
  EXPECT_EQ(*read_nrs_tunable(target, far),
            "reg_far:18446744073709551615\nhp_far:18446744073709551615\n");
  for (const char* text : {"10", "-1", "x", "", "reg_far:1", "near=1"}) {
    EXPECT_FALSE(write_nrs_tunable(target, near, text, {})) << text;
    EXPECT_FALSE(check_nrs_tunable(target, near, text)) << text;
  }
  EXPECT_EQ(*read_nrs_tunable(target, near), "reg_near:1\nhp_near:0\n");
  EXPECT_EQ(read_nrs_tunable(target, {"tuned", "nearr"}).error().code,
            std::errc::no_such_file_or_directory);
  EXPECT_EQ(read_nrs_tunable(target, {"tune", "near"}).error().code,
            std::errc::no_such_file_or_directory);
}

TEST(NrsText, ShowsWhatIsDrained) {
  Target target({}, {});
  ASSERT_TRUE(write_nrs_policies(target, "crrn reg", {}));
  Request request;
  target.admit(request, Head::kRegular, instant_at(0));
  EXPECT_NE(
      read_nrs_policies(target).find("crrn\n    state: started\n    fallback: no\n    queued: 1 "),
      std::string::npos);
  ASSERT_TRUE(write_nrs_policies(target, "fifo", {}));
  EXPECT_NE(
      read_nrs_policies(target).find("crrn\n    state: stopping\n    fallback: no\n    queued: 1 "),
      std::string::npos);
  ASSERT_EQ(target.next(instant_at(0)).kind(), Decision::Kind::kRun);
  EXPECT_NE(read_nrs_policies(target).find("queued: 0                   \n    active: 1 "),
            std::string::npos);
  target.complete(request, instant_at(0));
  EXPECT_EQ(read_nrs_policies(target).find("stopping"), std::string::npos);
}

TEST(NrsText, RefusesWhatAServerRefuses) {
  Target target({}, {});
  ASSERT_TRUE(write_nrs_policies(target, "crrn", {}));
  const std::string before = read_nrs_policies(target);
  const auto code = [&](const std::string& text) {
    const auto written = write_nrs_policies(target, text, {});
    return written ? std::errc{} : written.error().code;
  };
  EXPECT_EQ(code(std::string(1044, 'x')), std::errc::invalid_argument);
  EXPECT_EQ(code("sixteencharslong"), std::errc::invalid_argument);
  EXPECT_EQ(code("crrn sixteencharslong"), std::errc::invalid_argument);
  for (const char* text :
       {"orr", "trr", "delay", "tbf\n", "crrn\n", "", " crrn", "Crrn", "fifo\n"}) {
    EXPECT_EQ(code(text), std::errc::no_such_file_or_directory) << text;
  }
  EXPECT_EQ(read_nrs_policies(target), before);
}

TEST(NrsText, RefusesHostileText) {
  using namespace std::string_literals;
  Target target({}, {});
  ASSERT_TRUE(write_nrs_policies(target, "tbf jobid", {}));
  const std::string policies = read_nrs_policies(target);
  const std::string rules = *read_nrs_tbf_rule(target);
  for (const std::string& text :
       {"tbf\0jobid"s, "tbf jobid\0"s, "tbf \xc3\xb6"s, "\xff"s, "\0"s, "tbf  jobid"s,
        std::string(4096, ' '), std::string(1'000'000, 'x')}) {
    EXPECT_FALSE(write_nrs_policies(target, text, {})) << text.substr(0, 40);
    EXPECT_FALSE(write_nrs_tbf_rule(target, text, instant_at(0))) << text.substr(0, 40);
    EXPECT_FALSE(write_nrs_tunable(target, kQuantum, text, {})) << text.substr(0, 40);
  }
  EXPECT_EQ(read_nrs_policies(target), policies);
  EXPECT_EQ(*read_nrs_tbf_rule(target), rules);
}

TEST(NrsText, ReadsAndWritesTheQuantum) {
  Target target({}, {});
  EXPECT_EQ(read_nrs_tunable(target, kQuantum).error().code, std::errc::no_such_device);
  EXPECT_EQ(write_nrs_tunable(target, kQuantum, "5", {}).error().code, std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(target, "crrn", {}));
  EXPECT_EQ(*read_nrs_tunable(target, kQuantum), "reg_quantum:8    \nhp_quantum:8    \n");
  ASSERT_TRUE(write_nrs_tunable(target, kQuantum, "64\n", {}));
  ASSERT_TRUE(write_nrs_tunable(target, kQuantum, "hp_quantum:65535", {}));
  EXPECT_EQ(*read_nrs_tunable(target, kQuantum), "reg_quantum:64   \nhp_quantum:65535\n");
  for (const char* text : {"0", "65536", "x", "", "-1", "1.5", "reg_quantum:8 hp_quantum:4",
                           "99999999999", "reg_quantum:", "5 5", "quantum:5"}) {
    const auto written = write_nrs_tunable(target, kQuantum, text, {});
    ASSERT_FALSE(written) << text;
    EXPECT_EQ(written.error().code, std::errc::invalid_argument) << text;
  }
  EXPECT_EQ(write_nrs_tunable(target, kQuantum, "99999999999999999999", {}).error().code,
            std::errc::result_out_of_range);
  EXPECT_EQ(*read_nrs_tunable(target, kQuantum), "reg_quantum:64   \nhp_quantum:65535\n");
  ASSERT_TRUE(write_nrs_policies(target, "fifo hp", {}));
  EXPECT_EQ(*read_nrs_tunable(target, kQuantum), "reg_quantum:64   \n");
  EXPECT_EQ(write_nrs_tunable(target, kQuantum, "hp_quantum:5", {}).error().code,
            std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(target, "fifo", {}));
  ASSERT_TRUE(write_nrs_policies(target, "crrn", {}));
  EXPECT_EQ(*read_nrs_tunable(target, kQuantum), "reg_quantum:8    \nhp_quantum:8    \n");
}

TEST(NrsText, TheCommandsOfTheOriginalDesignWorkVerbatim) {
  Target target({}, {});
  const Instant now = instant_at(0);
  for (const char* policy : {"tbf nid", "tbf reg nid", "tbf hp nid"}) {
    ASSERT_TRUE(write_nrs_policies(target, policy, {})) << policy;
  }
  for (const char* rule :
       {"start loginnode {192.168.1.1@tcp} 10000",
        "start computenodes {192.168.1.[1-128]@tcp} 1000",
        "start other_clients {192.168.*.*@tcp} 100", "change loginnode 1000",
        "reg change loginnode 1000", "hp change loginnode 1000", "stop loginnode",
        "reg start loginnode {192.168.1.1@tcp} 10000", "hp start loginnode {192.168.1.1@tcp} 10000",
        "reg stop loginnode", "hp stop loginnode"}) {
    const auto written = write_nrs_tbf_rule(target, rule, now);
    EXPECT_TRUE(written) << rule << ": " << written.error().message();
  }
}

TEST(NrsText, ListsRulesByteForByte) {
  Target target({}, {});
  const Instant now = instant_at(0);
  EXPECT_EQ(read_nrs_tbf_rule(target).error().code, std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(target, "tbf jobid", {}));
  ASSERT_TRUE(write_nrs_tbf_rule(target, "start dd jobid={dd.0} rate=100", now));
  ASSERT_TRUE(write_nrs_tbf_rule(target, "hp stop dd", now));
  Request request;
  request.attributes.job = JobId("dd.0");
  target.admit(request, Head::kRegular, now);
  EXPECT_EQ(*read_nrs_tbf_rule(target),
            "regular_requests:\nCPT 0:\ndd jobid={dd.0} 100, ref 1\ndefault * 10000, ref 0\n"
            "high_priority_requests:\nCPT 0:\ndefault * 10000, ref 0\n");
  target.withdraw(request, now);
  EXPECT_NE(read_nrs_policies(target).find("  - name: tbf jobid\n    state: started\n"),
            std::string::npos);
}

TEST(NrsText, AFailedSwitchKeepsThePolicyAndItsRules) {
  Target target({}, {});
  const Instant now = instant_at(0);
  ASSERT_TRUE(write_nrs_policies(target, "tbf jobid", {}));
  ASSERT_TRUE(write_nrs_tbf_rule(target, "start dd jobid={dd.0} rate=100", now));
  const std::string rules = *read_nrs_tbf_rule(target);
  for (const char* bad : {"tbf abc", "tbf jobid\n", "tbf ", "tbf nid++uid", "tbf +nid"}) {
    EXPECT_EQ(write_nrs_policies(target, bad, {}).error().code, std::errc::invalid_argument) << bad;
    EXPECT_EQ(*read_nrs_tbf_rule(target), rules) << bad;
  }
  ASSERT_TRUE(write_nrs_policies(target, "tbf jobid", {}));
  EXPECT_EQ(*read_nrs_tbf_rule(target), rules) << "the same type goes on";
  ASSERT_TRUE(write_nrs_policies(target, "tbf nid", {}));
  EXPECT_NE(*read_nrs_tbf_rule(target), rules);
}

TEST(NrsText, RuleCommandsWhereTbfDoesNotRun) {
  Target target({}, {});
  const Instant now = instant_at(0);
  const auto code = [&](const char* text) {
    const auto written = write_nrs_tbf_rule(target, text, now);
    return written ? std::errc{} : written.error().code;
  };
  EXPECT_EQ(code("start dd jobid={a} rate=1"), std::errc::invalid_argument);
  EXPECT_EQ(code("change dd rate=1"), std::errc::no_such_device);
  EXPECT_EQ(code("stop dd"), std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(target, "tbf reg jobid", {}));
  EXPECT_EQ(code("start dd jobid={a} rate=1"), std::errc::invalid_argument);
  EXPECT_EQ(code("stop dd"), std::errc::no_such_device);
  EXPECT_EQ(code("reg start dd jobid={a} rate=1"), std::errc{});
  EXPECT_EQ(code("hp stop dd"), std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(target, "tbf hp nid", {}));
  EXPECT_EQ(code("start both jobid={a} rate=1"), std::errc::invalid_argument);
  ASSERT_TRUE(write_nrs_policies(target, "tbf hp jobid", {}));
  EXPECT_EQ(code("start dd jobid={a} rate=1"), std::errc::file_exists);
  EXPECT_EQ(target.rules(Head::kHigh)->rules(Head::kHigh).find("dd"), nullptr) << "nothing applied";
  EXPECT_EQ(code("start both jobid={a} rate=1"), std::errc{});
}

// ---- what upstream's sanityn.sh and conf-sanity.sh check, in virtual time, by their numbers ----

constexpr std::uint32_t kOstRead = 3;
constexpr std::uint32_t kOstWrite = 4;

Nid tcp(const char* text) { return parse_nid(text).value(); }

// A client's process.
Attributes process(const char* nid, const char* job, std::uint32_t id) {
  Attributes attributes;
  attributes.nid = tcp(nid);
  attributes.job = JobId(job);
  attributes.uid = attributes.gid = attributes.projid = id;
  attributes.nodemap = 0;
  return attributes;
}
// The process that upstream's tests limit, and one that they do not limit.
Attributes runas() { return process("10.0.0.1@tcp", "dd.500", 500); }
Attributes other() { return process("10.0.0.2@tcp", "cp.0", 7); }

class Upstream : public testing::Test {
 protected:
  void policy(const char* text) {
    const auto written = write_nrs_policies(target, text, {});
    ASSERT_TRUE(written) << text << ": " << written.error().message();
  }
  void rule(const std::string& text) {
    const auto written = write_nrs_tbf_rule(target, text, now);
    ASSERT_TRUE(written) << text << ": " << written.error().message();
  }
  // The names of the rules in list order: upstream's tbf_rule_check.
  std::string rules() const {
    std::string names;
    for (const Rule* rule : target.rules(Head::kRegular)->rules(Head::kRegular).rules()) {
      names += rule->name() + " ";
    }
    return names;
  }

  // Advances the time to the next event and returns the request that runs then.
  Request& take() {
    for (;;) {
      const Decision decision = target.next(now);
      if (decision.kind() == Decision::Kind::kRun) return decision.request();
      EXPECT_EQ(decision.kind(), Decision::Kind::kWait);
      now = decision.until();
    }
  }
  // dd with direct I/O: 100 requests of 1 MiB, one after the other; how many a second.
  double dd(Attributes who, std::uint32_t opcode) {
    const Instant start = now;
    who.opcode = opcode;
    for (int i = 0; i < 100; ++i) {
      Request request;
      request.attributes = who;
      request.bytes = Bytes{1 << 20};
      target.admit(request, Head::kRegular, now);
      EXPECT_EQ(&take(), &request);
      now += std::chrono::microseconds{100};
      target.complete(request, now);
    }
    return 100 / std::chrono::duration<double>(now - start).count();
  }
  // Upstream's tbf_verify, and a lower bound: the limit is also reached. 0 stands for no limit
  // except that of default, which dd does not reach.
  void verify(const Attributes& who, int write_limit, int read_limit) {
    for (const auto& [opcode, limit] :
         {std::pair(kOstWrite, write_limit), {kOstRead, read_limit}}) {
      // Uses up saved tokens first; used tokens are refilled.
      now += std::chrono::seconds{10};
      const double rate = dd(who, opcode);
      const char* const what = opcode == kOstWrite ? "write" : "read";
      EXPECT_GE(rate, limit == 0 ? 5000 : limit) << what;
      if (limit == 0) continue;
      EXPECT_LT(rate, 1.1 * limit) << what;
    }
  }

  // 16 writes and 16 reads of each of two clients at once: upstream's nrs_write_read. All are
  // served, those of one client and kind in order of arrival; `meanwhile` is called when some have
  // run.
  template <class Meanwhile>
  void write_read(Meanwhile meanwhile) {
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < 64; ++i) {
      auto& request = *requests.emplace_back(std::make_unique<Request>());
      request.attributes = i % 2 == 0 ? runas() : other();
      request.attributes.opcode = i % 4 < 2 ? kOstWrite : kOstRead;
      request.bytes = Bytes{1 << 20};
      target.admit(request, Head::kRegular, now);
    }
    std::vector<Request*> ran;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (i == 8) meanwhile();
      Request& request = take();
      EXPECT_EQ(std::count(ran.begin(), ran.end(), &request), 0);
      ran.push_back(&request);
      now += std::chrono::microseconds{100};
      target.complete(request, now);
    }
    EXPECT_EQ(target.queued() + target.running(), 0U);
  }
  void write_read() {
    write_read([] {});
  }

  // Depths as on a Lustre server: 3 tokens, whatever the rate.
  Target target{{.gate = {.rules = {.depth_time = Nanoseconds{0}}}}, {}};
  Instant now = instant_at(0);
};

TEST_F(Upstream, Sanityn77aFifo) {
  policy("fifo");
  write_read();
  verify(runas(), 0, 0);
}

TEST_F(Upstream, Sanityn77bCrrnWithQuanta) {
  policy("crrn");
  write_read();
  for (const char* quantum : {"1", "64"}) {
    ASSERT_TRUE(write_nrs_tunable(target, kQuantum, quantum, {}));
    write_read();
  }
  write_read([&] { policy("fifo"); });
}

TEST_F(Upstream, Sanityn77eNidRules) {
  policy("tbf nid");
  write_read();
  rule("start localhost nid={0@lo} rate=1000");
  rule("start clients nid={10.0.0.1@tcp 0@lo} rate=100");
  rule("start others nid={*.*.*.*@tcp} rate=50");
  EXPECT_EQ(rules(), "others clients localhost default ");
  write_read();
  verify(runas(), 50, 50);  // the newest matches first
  write_read([&] {
    rule("change localhost rate=1001");
    rule("change clients rate=101");
    rule("change others rate=51");
  });
  verify(runas(), 51, 51);
  verify(other(), 51, 51);
  write_read([&] { rule("stop others"); });
  verify(runas(), 101, 101);
  verify(other(), 0, 0);
  verify(process("0@lo", "dd.500", 500), 101, 101);
  rule("stop clients");
  verify(process("0@lo", "dd.500", 500), 1001, 1001);
  rule("stop localhost");
  EXPECT_EQ(rules(), "default ");
  write_read([&] { policy("fifo"); });
}

TEST_F(Upstream, Sanityn77fJobidLists) {
  policy("tbf jobid");
  rule("start runas jobid={iozone.500 dd.500 tiotest.500} rate=1000");
  rule("start iozone_runas jobid={iozone.500} rate=100");
  rule("start dd_runas jobid={dd.500} rate=50");
  EXPECT_EQ(rules(), "dd_runas iozone_runas runas default ");
  write_read();
  verify(runas(), 50, 50);
  verify(process("10.0.0.1@tcp", "iozone.500", 500), 100, 100);
  verify(process("10.0.0.1@tcp", "tiotest.500", 500), 1000, 1000);
  write_read([&] {
    rule("change runas rate=1001");
    rule("change iozone_runas rate=101");
    rule("change dd_runas rate=51");
  });
  verify(runas(), 51, 51);
  write_read([&] {
    rule("stop dd_runas");
    rule("stop iozone_runas");
  });
  verify(runas(), 1001, 1001);
  rule("stop runas");
  verify(runas(), 0, 0);
}

TEST_F(Upstream, Sanityn77gFromNidToJobidUnderLoad) {
  policy("tbf nid");
  rule("start slow nid={*.*.*.*@tcp} rate=1");
  write_read([&] { policy("tbf jobid"); });
  rule("start dd_runas jobid={dd.500} rate=50");
  EXPECT_EQ(rules(), "dd_runas default ");
  write_read();
  verify(runas(), 50, 50);
  verify(other(), 0, 0);
}

TEST_F(Upstream, Sanityn77jOpcodes) {
  policy("tbf opcode");
  rule("start ost_r opcode={ost_read} rate=5");
  rule("start ost_w opcode={ost_write} rate=20");
  write_read();
  verify(runas(), 20, 5);
  verify(other(), 20, 5);
}

TEST_F(Upstream, Sanityn77jaUidAndGid) {
  policy("tbf uid");
  rule("start ost_uid uid={500} rate=5");
  write_read();
  verify(runas(), 5, 5);
  verify(other(), 0, 0);
  policy("tbf gid");
  rule("start ost_gid gid={500} rate=5");
  verify(runas(), 5, 5);
  verify(other(), 0, 0);
}

// Files of another user: the user of the process counts, and other ids of the request do not split
// a class.
TEST_F(Upstream, Sanityn77jbUidOfTheProcess) {
  policy("tbf uid");
  rule("start ost_uid uid={500} rate=5");
  Attributes elsewhere = runas();
  elsewhere.gid = elsewhere.projid = 7;
  verify(elsewhere, 5, 5);
  Attributes owner = other();
  owner.gid = 500;
  verify(owner, 0, 0);
  dd(runas(), kOstWrite);  // no tokens are left
  const Instant before = now;
  dd(elsewhere, kOstWrite);
  EXPECT_GE(now - before, std::chrono::milliseconds{19'900}) << "a second bucket";
}

TEST_F(Upstream, Sanityn77kExpressions) {
  policy("tbf");
  const auto only = [&](const std::vector<const char*>& started, int write, int read,
                        int other_write, int other_read) {
    for (const char* text : started) rule(text);
    write_read();
    verify(runas(), write, read);
    verify(other(), other_write, other_read);
    for (const Rule* rule : target.rules(Head::kRegular)->rules(Head::kRegular).rules()) {
      if (!rule->is_default()) this->rule("stop " + rule->name());
    }
  };
  only({"start ext_w jobid={dd.500}&opcode={ost_write} rate=20",
        "start ext_r jobid={dd.500}&opcode={ost_read} rate=10"},
       20, 10, 0, 0);
  only({"start ext_w nid={0@lo 10.0.0.1@tcp}&opcode={ost_write} rate=20",
        "start ext_r nid={0@lo 10.0.0.1@tcp}&opcode={ost_read} rate=10"},
       20, 10, 0, 0);
  only({"start ext nid={0@lo 10.0.0.1@tcp}&jobid={dd.500} rate=20"}, 20, 20, 0, 0);
  // The newest rule matches first: requests of dd.500 and reads match ext_b, other writes ext_a.
  only({"start ext_a jobid={dd.500},opcode={ost_write} rate=20",
        "start ext_b jobid={dd.500},opcode={ost_read} rate=10"},
       10, 10, 20, 10);
  only({"start ext_ug uid={500}&gid={500} rate=5"}, 5, 5, 0, 0);
  only({"start ext_uo uid={500},opcode={ost_write} rate=20"}, 20, 20, 20, 0);
}

// 77kb, kc, kd, kf and kg: the same rules under types of two fields.
TEST_F(Upstream, Sanityn77kbToKgCombinedTypes) {
  struct Case {
    const char* number;
    const char* policy;
    std::vector<const char*> rules;
    int write, read;
  };
  const Case cases[] = {
      {"77kb",
       "tbf jobid+opcode",
       {"start ext_w jobid={dd.500}&opcode={ost_write} rate=20",
        "start ext_r jobid={dd.500}&opcode={ost_read} rate=10"},
       20,
       10},
      {"77kc",
       "tbf nid+opcode",
       {"start ext_w nid={0@lo 10.0.0.1@tcp}&opcode={ost_write} rate=20",
        "start ext_r nid={0@lo 10.0.0.1@tcp}&opcode={ost_read} rate=10"},
       20,
       10},
      {"77kd", "tbf nid+jobid", {"start ext nid={10.0.0.1@tcp}&jobid={dd.500} rate=20"}, 20, 20},
      {"77kf", "tbf uid+gid", {"start ext_ug uid={500}&gid={500} rate=5"}, 5, 5},
      {"77kg",
       "tbf uid+opcode",
       {"start ext_w uid={500}&opcode={ost_write} rate=20",
        "start ext_r uid={500}&opcode={ost_read} rate=10"},
       20,
       10},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.number);
    policy(c.policy);
    for (const char* text : c.rules) rule(text);
    write_read();
    verify(runas(), c.write, c.read);
    verify(other(), 0, 0);
  }
}

TEST_F(Upstream, Sanityn77khProjid) {
  Attributes project = runas();
  project.projid = 100;
  policy("tbf projid");
  rule("start ext_proj_rw projid={100} rate=20");
  write_read();
  verify(project, 20, 20);
  verify(runas(), 0, 0);
  policy("tbf projid+opcode");
  rule("start ext_proj_w projid={100}&opcode={ost_write} rate=20");
  rule("start ext_proj_r projid={100}&opcode={ost_read} rate=10");
  verify(project, 20, 10);
  verify(runas(), 0, 0);
}

// A Gate knows only the nodemap default: a rule for another one cannot be started, and a rule for
// default does not match a client of another one.
TEST_F(Upstream, Sanityn77kjNodemap) {
  policy("tbf nodemap");
  const auto missing = write_nrs_tbf_rule(target, "start ext_nm_rw nodemap={TBF} rate=20", now);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, std::errc::invalid_argument);
  EXPECT_EQ(rules(), "default ");
  Attributes removed = runas();
  removed.nodemap = 5;
  rule("start ext_nm_rw nodemap={default} rate=20");
  verify(runas(), 20, 20);
  verify(removed, 0, 0);
  policy("tbf nodemap+opcode");
  rule("start ext_nm_w nodemap={default}&opcode={ost_write} rate=20");
  verify(runas(), 20, 0);
}

TEST_F(Upstream, Sanityn77lGenericIsShownWithoutItsType) {
  policy("tbf nid");
  EXPECT_NE(read_nrs_policies(target).find("  - name: tbf nid\n    state: started\n"),
            std::string::npos);
  policy("tbf");
  EXPECT_NE(read_nrs_policies(target).find("  - name: tbf\n    state: started\n"),
            std::string::npos);
  EXPECT_EQ(read_nrs_policies(target).find("tbf nid"), std::string::npos);
}

// Upstream tests it with orr, in parallel: only 0, ENODEV and EAGAIN may result. Here a policy is
// started when the write returns.
TEST_F(Upstream, Sanityn78TuningRightAfterTheStart) {
  for (int i = 0; i < 10; ++i) {
    policy("crrn");
    EXPECT_TRUE(write_nrs_tunable(target, kQuantum, "1", {}));
    policy("fifo");
    EXPECT_EQ(write_nrs_tunable(target, kQuantum, "1", {}).error().code, std::errc::no_such_device);
  }
}

TEST_F(Upstream, ConfSanity117RulesCannotBeReadUnderFifo) {
  policy("fifo");
  EXPECT_EQ(read_nrs_tbf_rule(target).error().code, std::errc::no_such_device);
}

// The Gate does not store rules across restarts; this checks that each of the lines can be applied.
TEST_F(Upstream, ConfSanity123ajTheRulesThatAreStored) {
  policy("tbf");
  for (const char* text :
       {"start rule1 uid={500 502 } rate=1000", "start rule2 nid={10.10.2.20@tcp} rate=1000",
        "start rule3 jobid={cat.0.0} rate=1000", "start rule4 jobid={fio.0.0} rate=500",
        "change rule4 rate=50", "change rule4 rate=5000"}) {
    rule(text);
  }
  EXPECT_EQ(rules(), "rule4 rule3 rule2 rule1 default ");
  const std::string listing = *read_nrs_tbf_rule(target);
  EXPECT_NE(listing.find("rule1 uid={500 502 } 1000, ref 0\n"), std::string::npos) << listing;
  EXPECT_NE(listing.find("rule4 jobid={fio.0.0} 5000, ref 0\n"), std::string::npos) << listing;
}

}  // namespace
}  // namespace weir
