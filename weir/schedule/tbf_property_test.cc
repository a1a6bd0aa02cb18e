// SPDX-License-Identifier: Apache-2.0
//
// The Gate with tbf, and switches between policies, against the model in model_gate_for_tests.h.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/model_gate_for_tests.h"
#include "weir/schedule/tbf.h"

namespace weir::model {
namespace {

// Drives both and compares their decisions.
class Duel {
 public:
  static constexpr int kSlots = 64;

  // `keys` is the number of jobs, and of clients.
  Duel(std::uint64_t seed, int keys, Flaw flaw = Flaw::kNone)
      : keys_(keys),
        flaw_(flaw),
        rng_(seed),
        reserve_rng_(seed),
        model_(kSlots, flaw),
        gate_({.slots = kSlots}) {
    for (int job = 0; job < keys; ++job) jobs_.emplace_back("job" + std::to_string(job));
    switch_policy();
  }
  ~Duel() {
    const Instant now = instant_at(now_);
    gate_.shutdown(now);
    // After a difference the two disagree on which requests run.
    for (auto& request : requests_) {
      const bool is_deferred = request->place() == Request::Place::kDeferred ||
                               request->place() == Request::Place::kResumed;
      if (is_deferred) gate_.withdraw(*request, now);
    }
    do {
      for (auto& request : requests_) {
        if (request->place() == Request::Place::kRunning) gate_.complete(*request, now);
      }
    } while (gate_.next(now).kind() == Decision::Kind::kRun);
  }

  // Empty if all decisions were equal, otherwise the first that differed. `events` are made between
  // the requests: changes of rules, and each sixth time a change of the policy.
  std::string run(int requests, int events) {
    const int every = requests / (events + 1);
    for (int number = 0; number < requests; ++number) {
      if (number % every == every - 1) event();
      if (number % 1000 == 0) capacity_ = rng_.between(600, 2000);
      admit();
      if (rng_.chance(1, 50)) withdraw_or_promote();
      if (rng_.chance(1, 30)) defer_or_resume();
      if (rng_.chance(1, 40)) charge();
      complete();
      // Each job sends about as much as the default rule allows.
      now_ += rng_.between(0, 240'000 / keys_);
      if (std::string fault = decide(); !fault.empty()) return fault;
    }
    model_.shutdown();
    gate_.shutdown(instant_at(now_));
    while (!deferred_.empty()) abandon(deferred_.size() - 1);
    while (!queued_.empty() || !running_.empty()) {
      while (!running_.empty()) complete_one();
      if (std::string fault = decide(); !fault.empty()) return fault;
    }
    return {};
  }

  // A rule that only the model has.
  void start_in_model(const ModelRule& rule) { tbf_->start(rule, -1, now_); }

  struct Counts {
    int commands = 0, switches = 0, runs = 0, waits = 0, full = 0, drained = 0;
    int resumed = 0, abandoned = 0, settled = 0, charged = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  static std::size_t at(int number) { return static_cast<std::size_t>(number); }

  // A new request, and its counterpart in the model.
  ModelRequest make() {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(requests_.size()));
      requests_.push_back(std::make_unique<Request>());
      places_.push_back(0);
    }
    ModelRequest plain{free_.back(), any_key(), any_key(), rng_.between(0, 20'000)};
    if (rng_.chance(1, 200)) plain.bytes = 5'000'000;
    Request& request = *requests_[at(plain.id)];
    request.attributes.job = jobs_[at(plain.job)];
    request.attributes.nid = nid_of(plain.client);
    request.bytes = Bytes{static_cast<std::uint64_t>(plain.bytes)};
    return plain;
  }
  void admit() {
    const ModelRequest plain = make();
    const int id = plain.id;
    Request& request = *requests_[at(id)];
    free_.pop_back();
    const Head head = rng_.chance(1, 20) ? Head::kHigh : Head::kRegular;
    gate_.admit(request, head, instant_at(now_));
    model_.admit(plain, head, now_);
    places_[at(id)] = queued_.size();
    queued_.push_back(id);
  }
  void leave_queue(int id) {
    const std::size_t place = places_[at(id)];
    queued_[place] = queued_.back();
    places_[at(queued_[place])] = place;
    queued_.pop_back();
  }
  void withdraw_or_promote() {
    const int id = queued_[rng_.below(queued_.size())];
    if (rng_.chance(1, 2)) {
      gate_.promote(*requests_[at(id)], instant_at(now_));
      model_.promote(id, now_);
      return;
    }
    gate_.withdraw(*requests_[at(id)], instant_at(now_));
    model_.withdraw(id, now_);
    leave_queue(id);
    free_.push_back(id);
  }
  static void take_out(std::vector<int>& ids, std::size_t which) {
    ids[which] = ids.back();
    ids.pop_back();
  }
  void complete_one() {
    const std::size_t which = rng_.below(running_.size());
    const int id = running_[which];
    Request& request = *requests_[at(id)];
    const auto charged = static_cast<std::int64_t>(request.bytes.count());
    if (rng_.chance(1, 100)) {
      gate_.complete(request, instant_at(now_), Outcome::not_started());
      model_.complete(id, ModelPolicy::kNotStarted, now_);
      ++counts_.settled;
    } else if (rng_.chance(1, 10)) {
      const std::int64_t moved = rng_.between(0, rng_.chance(1, 2) ? charged : 2 * charged + 9);
      gate_.complete(request, instant_at(now_),
                     Outcome::done(Bytes{static_cast<std::uint64_t>(moved)}));
      model_.complete(id, moved, now_);
      ++counts_.settled;
    } else {
      gate_.complete(request, instant_at(now_));
      model_.complete(id, charged, now_);
    }
    take_out(running_, which);
    free_.push_back(id);
  }
  void abandon(std::size_t which) {
    const int id = deferred_[which];
    gate_.withdraw(*requests_[at(id)], instant_at(now_));
    model_.abandon(id, now_);
    take_out(deferred_, which);
    free_.push_back(id);
    ++counts_.abandoned;
  }
  void defer_or_resume() {
    if (!running_.empty() && (deferred_.size() < 5 || rng_.chance(1, 2))) {
      const std::size_t which = rng_.below(running_.size());
      gate_.defer(*requests_[at(running_[which])], instant_at(now_));
      model_.defer();
      deferred_.push_back(running_[which]);
      take_out(running_, which);
    } else if (!deferred_.empty()) {
      const std::size_t which = rng_.below(deferred_.size());
      if (rng_.chance(1, 4)) return abandon(which);
      Request& request = *requests_[at(deferred_[which])];
      if (request.place() == Request::Place::kResumed) return;
      gate_.resume(request, instant_at(now_));
      model_.resume(deferred_[which]);
    }
  }
  void charge() {
    const ModelRequest plain = make();
    gate_.charge(*requests_[at(plain.id)], Head::kRegular, instant_at(now_));
    model_.charge(plain, now_);
    ++counts_.charged;
  }
  // Completes requests at the speed of the device, which is sometimes slower and sometimes faster
  // than the arrivals.
  void complete() {
    for (credit_ += capacity_; credit_ >= 1000; credit_ -= 1000) {
      if (!running_.empty()) complete_one();
    }
  }

  std::string decide() {
    for (;;) {
      // Time that steps back counts as standing still.
      const bool steps_back = seen_ == now_ && rng_.chance(1, 20);
      const std::int64_t time = steps_back ? now_ - rng_.between(0, 10'000) : now_;
      const Decision decision = gate_.next(instant_at(time));
      seen_ = now_;
      const ModelPolicy::Offer expected = model_.next(now_);
      if (expected.id >= 0) {
        if (decision.kind() != Decision::Kind::kRun) return "idle, though one may run";
        if (&decision.request() != requests_[at(expected.id)].get()) return "ran another one";
        const auto again = std::find(deferred_.begin(), deferred_.end(), expected.id);
        if (decision.is_resumed() != (again != deferred_.end())) return "ran as another kind";
        if (again == deferred_.end()) {
          leave_queue(expected.id);
        } else {
          deferred_.erase(again);
          ++counts_.resumed;
        }
        running_.push_back(expected.id);
        if (gate_.running() > kSlots) return "runs more than its slots";
        ++counts_.runs;
        continue;
      }
      if (decision.kind() == Decision::Kind::kRun) return "ran one too early";
      if (ns_of(decision.until()) != expected.until) return "wakes at another time";
      if (running_.size() == kSlots) ++counts_.full;
      if (expected.until == kEnd) return {};
      ++counts_.waits;
      if (expected.until > now_ + 100'000 || !rng_.chance(1, 8)) return {};
      now_ = expected.until;
    }
  }

  void event() {
    if (++events_ % 6 == 0 || tbf_ == nullptr) {
      switch_policy();
    } else {
      command();
    }
  }
  void switch_policy() {
    live_.clear();
    tbf_ = nullptr;
    std::unique_ptr<ModelPolicy> policy;
    const char* name = "tbf";
    const char* argument = "";
    // The first is not counted: it starts the run.
    switch (counts_.switches++ % 5) {
      case 0:
      case 2: {
        argument = "jobid";
        auto tbf = std::make_unique<ModelTbf>(ModelTbf::By::kJob, keys_, flaw_);
        tbf_ = tbf.get();
        by_ = ModelTbf::By::kJob;
        policy = std::move(tbf);
        break;
      }
      case 1:
        name = "fifo";
        break;
      case 3: {
        argument = "nid";
        auto tbf = std::make_unique<ModelTbf>(ModelTbf::By::kClient, keys_, flaw_);
        tbf_ = tbf.get();
        by_ = ModelTbf::By::kClient;
        policy = std::move(tbf);
        break;
      }
      default:
        name = "crrn";
        policy = std::make_unique<ModelCrrn>(keys_);
    }
    counts_.drained += static_cast<int>(queued_.size());
    model_.start_policy(std::move(policy));
    ASSERT_TRUE(gate_.start_policy(name, argument, Heads::kRegular));
  }

  void apply(const std::string& text) {
    ++counts_.commands;
    const auto applied = gate_.write_rule("reg " + text, instant_at(now_));
    ASSERT_TRUE(applied) << text << ": " << applied.error().message();
  }
  static std::string name_of(int rule) {
    return rule == ModelTbf::kDefault ? "default" : "r" + std::to_string(rule);
  }
  int any_key() { return static_cast<int>(rng_.below(static_cast<std::uint64_t>(keys_))); }
  int any_live() { return live_[rng_.below(live_.size())]; }
  std::int64_t any_rate() {
    return rng_.chance(1, 10) ? rng_.between(1, 50) : rng_.between(2'000, 20'000);
  }
  std::int64_t any_bps() { return rng_.between(50'000'000, 500'000'000); }

  void command() {
    if (live_.empty() || rng_.chance(1, 2)) return start();
    const int rule = any_live();
    const std::uint64_t what = rng_.below(4);
    if (what == 0) {
      std::erase(live_, rule);
      tbf_->stop(rule, now_);
      return apply("stop " + name_of(rule));
    }
    if (what == 1) {
      const int before = rng_.chance(1, 5) ? ModelTbf::kDefault : any_live();
      tbf_->rank(rule, before, now_);
      return apply("change " + name_of(rule) + " rank=" + name_of(before));
    }
    ModelRule limits = tbf_->rule(rule);
    std::string text = "change " + name_of(rule);
    if (limits.rate != 0 && reserve_rng_.chance(1, 3)) {
      const bool has_none = limits.reserve == 0;
      limits.reserve =
          has_none || reserve_rng_.chance(1, 2) ? reserve_rng_.between(1, limits.rate) : 0;
      if (limits.reserve == tbf_->rule(rule).reserve) return;
      tbf_->change(rule, limits, now_);
      return apply(text + " reserve=" + std::to_string(limits.reserve));
    }
    if (what == 2 || limits.bps == 0) {
      // A different rate: if nothing changes, no queue has to enter again.
      while (limits.rate == tbf_->rule(rule).rate) limits.rate = any_rate();
      text += " rate=" + std::to_string(limits.rate);
      if (limits.reserve > limits.rate) {
        limits.reserve = limits.rate;
        text += " reserve=" + std::to_string(limits.reserve);
      }
    } else {
      limits.bps = any_bps();
      text += " bps=" + std::to_string(limits.bps) + "B";
    }
    if (limits.rate != 0 && rng_.chance(1, 4)) {
      limits.burst = rng_.between(1, 50);
      text += " burst=" + std::to_string(limits.burst);
    }
    tbf_->change(rule, limits, now_);
    apply(text);
  }

  void start() {
    ModelRule rule;
    const bool by_job = by_ == ModelTbf::By::kJob;
    std::string conds = by_job ? "jobid={*}" : "nid={*.*.*.*@tcp}";
    if (rng_.chance(2, 3)) {
      rule.key = any_key();
      conds = by_job ? "jobid={job" + std::to_string(rule.key) + "}"
                     : "nid={" + print_nid(nid_of(rule.key)) + "}";
    }
    std::string keys;
    const std::uint64_t limits = rng_.below(6);  // 0: bytes, 1: both, else operations
    if (limits != 0) rule.rate = any_rate();
    if (limits != 0) keys += " rate=" + std::to_string(rule.rate);
    if (limits <= 1) rule.bps = any_bps();
    if (limits <= 1) keys += " bps=" + std::to_string(rule.bps) + "B";
    if (limits != 0 && rng_.chance(1, 3)) {
      rule.burst = rng_.between(1, 50);
      keys += " burst=" + std::to_string(rule.burst);
    }
    if (limits != 0 && reserve_rng_.chance(1, 3)) {
      rule.reserve = reserve_rng_.between(1, rule.rate);
      keys += " reserve=" + std::to_string(rule.reserve);
    }
    if (rng_.chance(1, 4)) {
      rule.realtime = true;
      keys += " realtime=1";
    }
    const int before = !live_.empty() && rng_.chance(1, 3) ? any_live() : -1;
    if (before >= 0) keys += " rank=" + name_of(before);
    const int number = tbf_->start(rule, before, now_);
    live_.push_back(number);
    apply("start " + name_of(number) + " " + conds + keys);
  }

  int keys_;
  Flaw flaw_;
  Rng rng_;
  Rng reserve_rng_;
  std::int64_t now_ = 5 * kBillion;
  std::int64_t seen_ = 0;         // the last time that was passed to the Gate
  std::int64_t capacity_ = 1000;  // completions for each 1000 requests
  std::int64_t credit_ = 0;
  int events_ = 0;
  Counts counts_;
  std::vector<JobId> jobs_;
  std::vector<std::unique_ptr<Request>> requests_;  // by id
  std::vector<std::size_t> places_;                 // in queued_, by id
  std::vector<int> free_, queued_, running_;        // ids
  std::vector<int> deferred_;                       // and resumed ones
  ModelTbf* tbf_ = nullptr;                         // current policy, if it is a tbf
  ModelTbf::By by_ = ModelTbf::By::kJob;
  std::vector<int> live_;  // rules of it
  ModelGate model_;
  Gate gate_;
};

TEST(TbfModel, PredictsEveryDecision) {
  Duel duel(1, 120);
  EXPECT_EQ(duel.run(1'000'000, 36), "");
  const Duel::Counts& counts = duel.counts();
  EXPECT_GE(counts.commands, 20);
  EXPECT_GE(counts.switches, 4);  // and the initial policy
  // A run in which too little happens proves nothing.
  EXPECT_GE(counts.runs, 900'000);
  EXPECT_GE(counts.waits, 100'000);
  EXPECT_GE(counts.full, 100'000);
  EXPECT_GE(counts.drained, 100);
  EXPECT_GE(counts.resumed, 10'000);
  EXPECT_GE(counts.abandoned, 1'000);
  EXPECT_GE(counts.settled, 50'000);
  EXPECT_GE(counts.charged, 10'000);
}

TEST(TbfModel, PredictsEveryDecisionOfOtherSeeds) {
  for (std::uint64_t seed = 2; seed <= 12; ++seed) {
    EXPECT_EQ(Duel(seed, seed % 2 == 0 ? 10 : 100).run(10'000, 60), "") << "seed " << seed;
  }
}

TEST(TbfModel, CatchesARuleThatOnlyOneOfThemHas) {
  Duel duel(3, 100);
  duel.start_in_model({.key = 7, .rate = 1});
  EXPECT_NE(duel.run(10'000, 20), "");
}

TEST(TbfModel, CatchesEveryFlaw) {
  for (const Flaw flaw :
       {Flaw::kDepthOffByOne, Flaw::kRefillsOnChange, Flaw::kForgetsRank, Flaw::kRealtimeIsNotFirst,
        Flaw::kDrainsNewestFirst, Flaw::kDrainsBeforeTheOneInForce, Flaw::kPromotedStaysInLine,
        Flaw::kDeferredKeepsItsSlot, Flaw::kResumedWaitsForItsTurn, Flaw::kResumedHeadsAreAlike,
        Flaw::kAbandonedStaysCharged, Flaw::kNothingIsSettled, Flaw::kRefundsWhatAnotherPaid,
        Flaw::kExemptIsFree, Flaw::kReserveIsNotFirst, Flaw::kReserveMovesVirtualTime,
        Flaw::kReserveKeepsAllTokens, Flaw::kReserveIsNotRefunded}) {
    // Not every run triggers every flaw.
    std::uint64_t seed = 2;
    while (seed <= 30 && Duel(seed, 10, flaw).run(20'000, 60).empty()) ++seed;
    ASSERT_LE(seed, 30U) << static_cast<int>(flaw);
    EXPECT_EQ(Duel(seed, 10).run(20'000, 60), "") << "without the flaw, seed " << seed;
  }
}

// ---- layers and common buckets, which the model lacks: limits hold, all requests are served ----

// The requests that ran under a rule with one bucket (by=rule).
struct Grants {
  std::int64_t rate;
  std::int64_t depth;
  std::vector<std::int64_t> at;

  // Whether some window holds more than depth + rate x its length.
  bool too_many() const {
    for (std::size_t first = 0; first < at.size(); ++first) {
      for (std::size_t last = first; last < at.size(); ++last) {
        const auto count = static_cast<std::int64_t>(last - first + 1);
        const Wide allowed = Wide{depth} * kBillion + Wide{rate} * (at[last] - at[first]);
        if (Wide{count} * kBillion > allowed) return true;
      }
    }
    return false;
  }
};

TEST(TbfLayers, LimitsHoldInEveryWindowAndEverybodyIsServed) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Rng rng(seed);
    Tbf tbf(FieldSet{Field::kJobid, Field::kUid}, RuleOptions{});
    std::vector<Grants> grants;
    for (int layer = 0; layer < 4; ++layer) {
      const std::int64_t rate = rng.between(20, 300);
      const std::int64_t burst = rng.between(1, 10);
      grants.push_back({rate, burst, {}});
      const std::string field = rng.chance(1, 2) ? "jobid={*}" : "uid={1 2 3}";
      const auto command = parse_command(
          "start r" + std::to_string(layer) + " " + field + " rate=" + std::to_string(rate) +
              " burst=" + std::to_string(burst) + " by=rule layer=" + std::to_string(layer),
          tbf.type());
      ASSERT_TRUE(command && tbf.apply(*command, instant_at(0)));
    }
    std::vector<std::unique_ptr<Request>> requests;
    std::int64_t now = 0;
    std::size_t served = 0;
    const auto serve = [&](Head head) {
      const Pick pick = tbf.pick(head, instant_at(now), Urge::kInTime);
      if (pick.request == nullptr) return pick.until;
      ++served;
      for (unsigned layer = 0; layer < 4; ++layer) {
        const Rule* rule = tbf.rules(head).match(pick.request->attributes, layer);
        if (rule != nullptr && !rule->is_default()) grants[layer].at.push_back(now);
      }
      return instant_at(now);
    };
    while (served < 300) {
      if (requests.size() < 300 && rng.chance(2, 3)) {
        auto& request = *requests.emplace_back(std::make_unique<Request>());
        request.attributes.job = JobId("job" + std::to_string(rng.below(5)));
        request.attributes.uid = static_cast<std::uint32_t>(rng.below(6));
        tbf.admit(request, rng.chance(1, 4) ? Head::kHigh : Head::kRegular, instant_at(now));
        continue;
      }
      const Instant until = std::min(serve(Head::kHigh), serve(Head::kRegular));
      ASSERT_GE(until, instant_at(now)) << "asked to come back in the past, seed " << seed;
      if (until == kNever) {
        ASSERT_EQ(served, requests.size()) << "somebody waits for ever, seed " << seed;
        now += 1000;
      } else {
        now = std::max(ns_of(until), now + rng.between(0, 2'000'000));
      }
    }
    for (const Grants& layer : grants) EXPECT_FALSE(layer.too_many()) << "seed " << seed;
  }
}

TEST(TbfLayers, TheWindowCheckBites) {
  EXPECT_FALSE((Grants{10, 2, {0, 0, 100'000'000}}).too_many());
  EXPECT_TRUE((Grants{10, 2, {0, 0, 99'999'999}}).too_many());
}

}  // namespace
}  // namespace weir::model
