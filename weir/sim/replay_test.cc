// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/replay.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/classify/share_level.h"
#include "weir/target/nrs_text.h"
#include "weir/target/trace_writer.h"

namespace weir::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TraceReader::Source source_of(const std::string& bytes) {
  return [&bytes, at = std::size_t{0}](std::span<char> to) mutable -> Result<std::size_t> {
    const std::size_t count = std::min(to.size(), bytes.size() - at);
    std::copy_n(bytes.data() + at, count, to.data());
    at += count;
    return count;
  };
}

// A server with three targets, one of them with groups of clients and in a cluster, with clients
// that connect, disconnect, change rules and switch policies at random. Its trace is in `bytes`.
class Server {
 public:
  static constexpr const char* kWide = "start wide jobid={job*} rate=2000 scope=cluster";

  explicit Server(std::uint64_t seed, bool ends = true) : rng_(seed), ends_(ends) {
    add("ost_io", {.gate = {.slots = 4},
                   .auto_slots = true,
                   .latency_target = std::chrono::milliseconds{2},
                   .controller = ControllerOptions{},
                   .estimate_capacity = true});
    add("other", {.gate = {.slots = 4, .hp_slots = 1},
                  .controller = ControllerOptions{},
                  .capacity = Rate::per_second(3000),
                  .nodes_by_clients = true});
    add("tree", {.gate = {.slots = 4},
                 .controller = ControllerOptions{},
                 .capacity = Rate::per_second(2000),
                 .share_levels = {{Field::kUid}, kRuleLevel, FieldSet::subnet(24)}});
    EXPECT_TRUE(sides_.back().target->restore(saved_tree(), now_));
    Target::Options together{.controller = ControllerOptions{}, .capacity = Rate::per_second(5000)};
    together.gate.rules.in_cluster = true;
    together.gate.rules.groups = {*NidList::parse("0.0.0.[0-0]@tcp"),
                                  *NidList::parse("0.0.0.1@tcp")};
    add("together", together);
    Controller::State owed;
    owed.allocator.ledger.accounts.resize(2);
    owed.allocator.ledger.accounts[0].job = JobId("job1");
    owed.allocator.ledger.accounts[0].record = 40;
    owed.allocator.ledger.accounts[1].job = JobId("job2");
    owed.allocator.ledger.accounts[1].record = -40;
    EXPECT_TRUE(sides_.back().target->restore(owed, now_));
    EXPECT_TRUE(write_nrs_tbf_rule(*sides_.back().target, kWide, now_));
  }

  void run(int turns) {
    for (int i = 0; i < turns; ++i) turn();
    // The debt of exempt requests to a limit without a slice would take hours to repay.
    const ClassSlice slice[] = {{.rule = "wide",
                                 .key = std::nullopt,
                                 .slice = {.ops = Rate::per_second(900), .bytes = std::nullopt}}};
    sides_.back().target->set_slices(slice, now_);
    for (Side& side : sides_) side.target->shutdown(now_);
    while (!running_.empty() || !deferred_.empty() || queued() > 0) {
      complete_some();
      resume_some();
      ask();
      now_ += microseconds{5000};
    }
    if (ends_) writer_.end(false);
    writer_.flush();
  }
  const std::string& bytes() const { return bytes_; }

 private:
  struct Side {
    std::unique_ptr<Target> target;
    std::vector<Request*> waiting;
  };
  struct Running {
    Request* request;
    Side* side;
  };

  // Two users that owe each other tokens, one of whose jobs were here.
  static Controller::State saved_tree() {
    Controller::State state;
    state.tree.nodes.resize(4);
    auto& users = state.tree.nodes[0].allocator.ledger.accounts;
    users.resize(2);
    users[0].job = JobId("0");
    users[0].record = 30;
    users[1].job = JobId("1");
    users[1].record = -30;
    const std::vector<JobId> path = {JobId("1"), JobId("default"), JobId("0.0.0.0@tcp")};
    for (std::size_t depth = 1; depth <= path.size(); ++depth) {
      TreeAllocator::State::Node& node = state.tree.nodes[depth];
      node.path.assign(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth));
      auto& accounts = node.allocator.ledger.accounts;
      accounts.emplace_back().job = depth < path.size() ? path[depth] : JobId("job1");
    }
    return state;
  }

  void add(const std::string& name, const Target::Options& options) {
    Side& side = sides_.emplace_back();
    TraceTarget described{name, options, {"site"}, now_};
    described.options.gate.nodemaps = nodemaps_named(described.nodemaps);
    side.target = std::make_unique<Target>(described.options, now_);
    side.target->record(&writer_.add_target(described));
    EXPECT_TRUE(side.target->set_policy("tbf", "jobid", Heads::kBoth, {}));
  }
  std::size_t queued() const {
    std::size_t all = 0;
    for (const Side& side : sides_) all += side.waiting.size();
    return all;
  }
  std::uint64_t draw(std::uint64_t below) { return rng_.below(below); }

  void turn() {
    now_ += microseconds{static_cast<std::int64_t>(draw(400))};
    complete_some();
    resume_some();
    for (Side& side : sides_) {
      for (std::uint64_t i = draw(4); i > 0 && queued() < 300; --i) admit(side);
      if (draw(20) == 0 && !side.waiting.empty()) withdraw(side);
      if (draw(10) == 0)
        side.target->charge(make(), draw(4) == 0 ? Head::kHigh : Head::kRegular, now_);
      if (draw(20) == 0 && !side.waiting.empty()) {
        side.target->promote(*side.waiting[draw(side.waiting.size())], now_);
      }
      if (draw(30) == 0) command(side);
    }
    ask();
  }
  // An unused request.
  Request& make() {
    if (free_.empty()) free_.push_back(&requests_.emplace_back());
    Request& request = *free_.back();
    request.attributes.job = JobId("job" + std::to_string(draw(9)));
    request.attributes.nid.net = NetType::kTcp;
    request.attributes.nid.family = AddressFamily::kIpv4;
    request.attributes.nid.low = draw(3);
    request.attributes.uid = static_cast<std::uint32_t>(draw(3));  // jobs move
    request.attributes.opcode = 3 + static_cast<std::uint32_t>(draw(2));
    request.bytes = Bytes{std::uint64_t{4096} << draw(5)};
    return request;
  }
  void admit(Side& side) {
    Request& request = make();
    free_.pop_back();
    side.target->admit(request, draw(10) == 0 ? Head::kHigh : Head::kRegular, now_);
    side.waiting.push_back(&request);
  }
  void withdraw(Side& side) {
    const std::size_t at = draw(side.waiting.size());
    Request* const request = side.waiting[at];
    side.waiting.erase(side.waiting.begin() + static_cast<std::ptrdiff_t>(at));
    side.target->withdraw(*request, now_);
    free_.push_back(request);
  }
  void complete_some() {
    for (std::uint64_t i = draw(5); i > 0 && !running_.empty(); --i) {
      const Running one = running_.front();
      running_.pop_front();
      Target& target = *one.side->target;
      if (draw(8) == 0 && !target.is_shut_down()) {
        target.defer(*one.request, now_);
        deferred_.push_back(one);
        continue;
      }
      switch (draw(8)) {
        case 0:
          target.complete(*one.request, now_, weir::Outcome::not_started());
          break;
        case 1:
          target.complete(*one.request, now_, weir::Outcome::failed());
          break;
        case 2:
          target.complete(*one.request, now_, weir::Outcome::done(Bytes{draw(1 << 17)}));
          break;
        case 3:
          target.complete(*one.request, now_,
                          {.operations = static_cast<std::uint32_t>(draw(9)) + 1});
          break;
        default:
          target.complete(*one.request, now_);
      }
      free_.push_back(one.request);
    }
  }
  void resume_some() {
    while (!deferred_.empty() && draw(2) == 0) {
      const Running one = deferred_.front();
      deferred_.pop_front();
      if (draw(6) == 0) {
        one.side->target->withdraw(*one.request, now_);
        free_.push_back(one.request);
        continue;
      }
      one.side->target->resume(*one.request, now_);
      one.side->waiting.push_back(one.request);
    }
  }
  void command(Side& side) {
    Target& target = *side.target;
    const std::string job = "job" + std::to_string(draw(9));
    if (&side == &sides_.back() && draw(2) == 0) return act_together(target);
    switch (draw(10)) {
      case 0:
        (void)write_nrs_tbf_rule(
            target,
            "start r" + job + " jobid={" + job + "} rate=200 reserve=" + std::to_string(draw(201)),
            now_);
        break;
      case 1:
        (void)write_nrs_tbf_rule(target,
                                 "change r" + job + " rate=" + std::to_string(draw(999) + 1) +
                                     (draw(2) == 0 ? "" : " reserve=" + std::to_string(draw(500))),
                                 now_);
        break;
      case 2:
        (void)write_nrs_tbf_rule(target, "stop r" + job, now_);
        break;
      case 3:
        (void)write_nrs_tbf_rule(target, "start " + job, now_);  // refused
        break;
      case 4:
        (void)side.target->set_nodes(JobId(job), draw(5), now_);  // 0 removes the setting
        break;
      case 5:
        side.target->replay_capacity(Rate::per_second(1000 + draw(4000)), std::nullopt, now_);
        break;
      case 7:
        side.target->replay_capacity(
            Rate::per_second(1000 + draw(4000)),
            draw(2) == 0 ? CapacitySource::kGiven : CapacitySource::kEstimated, now_);
        side.target->set_nodes_by_clients(draw(2) == 0, now_);
        break;
      case 6:
        (void)write_nrs_policies(target, "crrn", {});
        (void)write_nrs_tunable(target, {"crrn", "quantum"}, "7", {});
        break;
      case 8:  // refused without a tree; 0 removes the setting
        (void)target.set_node_weight(std::to_string(draw(3)), draw(5), now_);
        break;
      default:
        (void)write_nrs_policies(target, "tbf jobid", {});
    }
  }
  // Commands that result from the other servers of a cluster.
  void act_together(Target& target) {
    switch (draw(4)) {
      case 0:
        return target.prefer_group(
            draw(4) == 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(draw(3))), now_);
      case 1:
        return target.hold(draw(3) == 0, now_);
      case 2:
        (void)write_nrs_tbf_rule(target, kWide, now_);
        break;
      default:
        break;
    }
    Attributes key;
    key.job = JobId("job" + std::to_string(1 + draw(8)));
    const ClassSlice slices[] = {
        {.rule = "wide",
         .key = std::nullopt,
         .slice = {.ops = Rate::per_second(1 + draw(900)), .bytes = std::nullopt}},
        {.rule = "wide",
         .key = key.only(FieldSet{Field::kJobid}),
         .slice = {.ops = Rate::per_second(1 + draw(900)), .bytes = std::nullopt}}};
    target.set_slices(slices, now_);
  }
  void ask() {
    for (Side& side : sides_) {
      for (;;) {
        const Decision decision = side.target->next(now_);
        if (decision.kind() != Decision::Kind::kRun) break;
        std::erase(side.waiting, &decision.request());
        running_.push_back({&decision.request(), &side});
      }
    }
  }

  std::string bytes_;
  TraceWriter writer_{{"weir test", 7}, [this](std::string block) { bytes_ += block; }};
  Rng rng_;
  bool ends_;
  Instant now_ = instant_at(1'000'000'000);
  std::deque<Request> requests_;
  std::vector<Request*> free_;
  std::deque<Running> running_;
  std::deque<Running> deferred_;
  std::deque<Side> sides_;
};

TEST(Replay, RepeatsEveryDecisionWhateverHappened) {
  for (const std::uint64_t seed : {1U, 2U}) {
    Server server(seed);
    server.run(4'000);
    const ReplayReport report = replay(source_of(server.bytes()));
    EXPECT_EQ(report.difference, "") << seed;
    EXPECT_TRUE(report.is_whole()) << report.complaint;
    EXPECT_EQ(report.head, (TraceHead{"weir test", 7}));
    EXPECT_EQ(report.targets, 4U);
    EXPECT_GT(report.run, 2'000U);
    EXPECT_GT(report.commands, 100U);
    EXPECT_GT(report.withdrawn, 50U);
    EXPECT_GT(report.deferred, 50U);
    EXPECT_GT(report.charged, 50U);
    EXPECT_GT(report.periods, 50U);
    EXPECT_EQ(report.admitted, report.completed + report.withdrawn);
    // The documented bound: 14 bytes for a request, plus records that are not requests.
    EXPECT_LT(server.bytes().size(), 40 * report.admitted);
  }
}

// Changes blocks as a forger would: other records with a correct checksum.
std::string sealed(std::string bytes) {
  std::size_t at = kTraceMagic.size() + 1;
  std::uint64_t sum = 0;
  while (at + kTraceBlockHead <= bytes.size()) {
    std::uint64_t size = 0;
    for (unsigned i = 0; i < 4; ++i) {
      size |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
    }
    sum = trace_checksum(sum, std::string_view(bytes).substr(at + kTraceBlockHead, size));
    for (unsigned i = 0; i < 8; ++i) bytes[at + 4 + i] = static_cast<char>(sum >> (8 * i));
    at += kTraceBlockHead + size;
  }
  return bytes;
}

TEST(Replay, FindsADecisionThatWasTamperedWith) {
  Server server(5);
  server.run(60);
  const std::string& good = server.bytes();
  ASSERT_EQ(sealed(good), good);
  // Changes an idle into a wait, or a wait into another wait, after the header.
  std::uint64_t found = 0;
  for (std::size_t at = good.size() / 2; at < good.size() - 40; at += 11) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] + 1);
    bad = sealed(bad);
    const ReplayReport report = replay(source_of(bad));
    if (report.difference.find("the trace has: run request") != std::string::npos &&
        report.difference.find("repeated: ") != std::string::npos) {
      ++found;
    }
    // A changed byte of a job name or a size need not change a decision.
    if (!report.is_identical()) {
      EXPECT_NE(report.difference.find("call "), std::string::npos);
    }
  }
  EXPECT_GT(found, 2U);
}

TEST(Replay, SaysHowFarATraceThatWasCutIsGood) {
  Server server(6, false);
  server.run(4'000);
  const std::string& whole = server.bytes();
  ASSERT_GT(whole.size(), kTraceBlockBytes + 2000);
  ReplayReport report = replay(source_of(whole));
  EXPECT_TRUE(report.is_identical()) << report.difference;
  EXPECT_EQ(report.ending, TraceReader::Ending::kCut);
  EXPECT_EQ(report.good_bytes, whole.size());
  const std::uint64_t calls = report.calls;

  for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{21}}) {
    const std::string cut = whole.substr(0, size);
    report = replay(source_of(cut));
    EXPECT_TRUE(report.is_identical()) << report.difference;
    EXPECT_EQ(report.ending, TraceReader::Ending::kCut) << size;
    EXPECT_LE(report.good_bytes, size);
    EXPECT_LT(report.calls, calls);
  }
}

TEST(Replay, SaysHowFarATraceThatWasDamagedIsGood) {
  Server server(7);
  server.run(4'000);
  std::string bytes = server.bytes();
  const std::size_t at = kTraceBlockBytes + 1000;
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  const ReplayReport report = replay(source_of(bytes));
  EXPECT_TRUE(report.is_identical()) << report.difference;
  EXPECT_EQ(report.ending, TraceReader::Ending::kDamaged);
  EXPECT_GT(report.calls, 1000U);
  EXPECT_LT(report.good_bytes, at);
  EXPECT_GE(report.good_bytes, kTraceBlockBytes);
}

TEST(Replay, RefusesWhatIsNoTrace) {
  for (const std::string bytes :
       {"", "weir", "#!/bin/sh\necho no trace at all\n", "weirtrc\x7f                        "}) {
    const ReplayReport report = replay(source_of(bytes));
    EXPECT_NE(report.ending, TraceReader::Ending::kWhole);
    EXPECT_EQ(report.calls, 0U);
    EXPECT_NE(report.complaint, "");
  }
}

TEST(ReplayProperty, NoBytesUnderARightChecksumDoHarm) {
  Server server(8);
  server.run(60);
  Rng rng(9);
  for (int i = 0; i < 150; ++i) {
    std::string bytes = server.bytes();
    for (std::uint64_t changes = 1 + rng.below(4); changes > 0; --changes) {
      bytes[20 + rng.below(bytes.size() - 20)] = static_cast<char>(rng.below(256));
    }
    const ReplayReport report = replay(source_of(sealed(std::move(bytes))));
    EXPECT_NE(report.ending, TraceReader::Ending::kForeign);
  }
}

}  // namespace
}  // namespace weir::sim
