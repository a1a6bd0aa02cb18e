// SPDX-License-Identifier: Apache-2.0
//
// A second tbf, slow and plain, that predicts every decision of the first: which request runs, and
// if none does, the nanosecond at which one will. Balances are whole numbers of billionths of a
// token, so that it is exact without fractions; every decision looks at every class.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/tbf.h"

namespace weir {
namespace {

using Wide = __int128;
constexpr std::int64_t kBillion = 1'000'000'000;

struct ModelRule {
  std::string name;
  std::string job;  // "*" for all
  std::int64_t rate = 0;
  std::int64_t bps = 0;
  std::int64_t burst = 0;
};

class Model {
 public:
  struct Job {
    std::string name;
    int number;
    std::int64_t bytes;
  };

  Model() { rules_.push_back({"default", "*", 10'000}); }

  void start(const ModelRule& rule, std::int64_t now) {
    rules_.push_front(rule);
    come_again(now);
  }
  void change(const std::string& name, std::int64_t rate, std::int64_t now) {
    for (ModelRule& rule : rules_) {
      if (rule.name != name) continue;
      for (auto& [key, c] : classes_) {
        if (key.first != name) continue;
        fill(c, now);
        c.rule.rate = rate;
        const std::vector<Bucket> before = c.buckets;
        c.buckets = buckets_of(c.rule);
        // The balance stays, rounded down to what the new rate can express.
        const std::int64_t unit = std::gcd(rate, kBillion);
        c.buckets[0].balance = std::min(before[0].balance / unit * unit, c.buckets[0].full());
        if (c.buckets.size() > 1) c.buckets[1].balance = before[1].balance;
        c.filled_at = now;
      }
      rule.rate = rate;
    }
    come_again(now);
  }
  void stop(const std::string& name, std::int64_t now) {
    rules_.remove_if([&](const ModelRule& rule) { return rule.name == name; });
    come_again(now);
    std::erase_if(classes_, [&](const auto& entry) { return entry.first.first == name; });
  }

  void admit(const Job& job, std::int64_t now) {
    auto& queue = queues_[job.name];
    queue.push_back(job);
    if (queue.size() > 1) return;
    busy_.push_back(job.name);
    enter(job.name, now);
  }

  // The request that runs now.
  std::optional<Job> pick(std::int64_t now) {
    const std::string* best = nullptr;
    for (const std::string& job : busy_) {
      if (ready_at(job, now) > now) continue;
      if (best == nullptr || before(job, *best)) best = &job;
    }
    if (best == nullptr) return std::nullopt;
    const std::string name = *best;
    Class& c = class_of(name, now);
    const Job first = queues_[name].front();
    fill(c, now);
    virtual_ = std::max(virtual_, c.tag);
    std::int64_t step = 1;
    for (Bucket& bucket : c.buckets) {
      bucket.balance -= bucket.cost(first) * Wide{kBillion};
      step = std::max(step, ceil_div(Wide{bucket.cost(first)} * kBillion, bucket.rate));
    }
    c.tag += step;
    queues_[name].pop_front();
    if (queues_[name].empty()) {
      busy_.remove(name);
    } else {
      enter(name, now);
    }
    return first;
  }
  // The first nanosecond at which something may run.
  std::int64_t until(std::int64_t now) {
    std::int64_t first = INT64_MAX;
    for (const std::string& job : busy_) first = std::min(first, ready_at(job, now));
    return first;
  }

 private:
  struct Bucket {
    std::int64_t rate;
    std::int64_t depth;
    bool of_bytes;
    Wide balance;  // in billionths
    Wide full() const { return Wide{depth} * kBillion; }
    std::int64_t cost(const Job& job) const { return of_bytes ? job.bytes : 1; }
  };
  struct Class {
    ModelRule rule;
    std::vector<Bucket> buckets;
    std::int64_t filled_at = 0;
    std::int64_t tag = 0;
  };

  static std::int64_t ceil_div(Wide a, Wide b) {
    return static_cast<std::int64_t>((a + b - 1) / b);
  }

  static std::vector<Bucket> buckets_of(const ModelRule& rule) {
    std::vector<Bucket> buckets;
    const std::int64_t depth =
        rule.burst > 0 ? rule.burst : std::max<std::int64_t>(3, rule.rate / 100);
    buckets.push_back({rule.rate, depth, false, Wide{depth} * kBillion});
    if (rule.bps > 0) {
      const std::int64_t bytes = std::max<std::int64_t>(65536, rule.bps / 100);
      buckets.push_back({rule.bps, bytes, true, Wide{bytes} * kBillion});
    }
    return buckets;
  }

  Class& class_of(const std::string& job, std::int64_t now) {
    const auto rule = std::find_if(rules_.begin(), rules_.end(), [&](const ModelRule& candidate) {
      return candidate.job == job || candidate.job == "*";
    });
    const auto [entry, is_new] = classes_.try_emplace({rule->name, job});
    if (is_new) entry->second = {*rule, buckets_of(*rule), now, 0};
    return entry->second;
  }
  static void fill(Class& c, std::int64_t now) {
    for (Bucket& bucket : c.buckets) {
      const Wide came = Wide{bucket.rate} * (now - c.filled_at);
      bucket.balance = std::min(bucket.balance + came, bucket.full());
    }
    c.filled_at = now;
  }
  std::int64_t ready_at(const std::string& job, std::int64_t now) {
    Class& c = class_of(job, now);
    fill(c, now);
    std::int64_t ready = now;
    for (const Bucket& bucket : c.buckets) {
      const Wide need = Wide{std::min(bucket.cost(queues_[job].front()), bucket.depth)} * kBillion;
      if (bucket.balance < need) {
        ready = std::max(ready, now + ceil_div(need - bucket.balance, bucket.rate));
      }
    }
    return ready;
  }
  void enter(const std::string& job, std::int64_t now) {
    Class& c = class_of(job, now);
    c.tag = std::max(c.tag, virtual_ - ceil_div(c.buckets[0].full(), c.buckets[0].rate));
    entered_[job] = {c.tag, queues_[job].front().number};
  }
  bool before(const std::string& a, const std::string& b) { return entered_[a] < entered_[b]; }
  void come_again(std::int64_t now) {
    for (const std::string& job : busy_) enter(job, now);
  }

  std::list<ModelRule> rules_;
  std::map<std::pair<std::string, std::string>, Class> classes_;
  std::map<std::string, std::deque<Job>> queues_;
  std::list<std::string> busy_;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> entered_;
  std::int64_t virtual_ = std::int64_t{1} << 62;
};

// Drives both, and compares.
class Duel {
 public:
  explicit Duel(std::uint64_t seed)
      : rng_(seed), tbf_(*FieldSet::parse_type("jobid"), Tbf::Options{}) {}
  ~Duel() {
    while (tbf_.pick(Head::kRegular, instant_at(now_), Urge::kForce).request != nullptr) continue;
  }

  // Empty when all decisions were alike, else the first that was not.
  std::string run(int requests, int jobs, int commands) {
    const int every = requests / (commands + 1);
    for (int number = 0; number < requests; ++number) {
      if (number % every == every - 1) command();
      admit(number, "job" + std::to_string(rng_.below(static_cast<std::uint64_t>(jobs))));
      // About as much comes as may run, so that queues grow and empty.
      now_ += rng_.between(0, 2000);
      if (std::string fault = decide(); !fault.empty()) return fault;
    }
    return {};
  }

  Model model;

 private:
  void admit(int number, const std::string& job) {
    auto& request = requests_[number];
    request = std::make_unique<Request>();
    request->attributes.job = JobId(job);
    request->bytes = Bytes{rng_.below(3) == 0 ? 1'000'000 : rng_.below(10'000)};
    tbf_.admit(*request, Head::kRegular, instant_at(now_));
    model.admit({job, number, static_cast<std::int64_t>(request->bytes.count())}, now_);
  }

  std::string decide() {
    for (;;) {
      const Pick pick = tbf_.pick(Head::kRegular, instant_at(now_), Urge::kInTime);
      const auto expected = model.pick(now_);
      if (!expected) {
        if (pick.request != nullptr) return "ran one too early";
        if (pick.until != instant_at(model.until(now_))) return "wakes at another time";
        return {};
      }
      if (pick.request == nullptr) return "idle, though one may run";
      if (pick.request != requests_[expected->number].get()) return "ran another one";
      requests_.erase(expected->number);
    }
  }

  void command() {
    const std::string number = std::to_string(commands_++);
    std::string text;
    if (!live_.empty() && rng_.chance(1, 4)) {
      text = "stop " + live_.front();
      model.stop(live_.front(), now_);
      live_.pop_front();
    } else if (!live_.empty() && rng_.chance(1, 2)) {
      const std::int64_t rate = rng_.between(1, 20'000);
      text = "change " + live_.back() + " rate=" + std::to_string(rate);
      model.change(live_.back(), rate, now_);
    } else {
      ModelRule rule{"r" + number,
                     rng_.chance(1, 5) ? "*" : "job" + std::to_string(rng_.below(100)),
                     rng_.between(1, 20'000)};
      text = "start " + rule.name + " jobid={" + rule.job + "} rate=" + std::to_string(rule.rate);
      if (rng_.chance(1, 3)) {
        rule.bps = rng_.between(1'000'000, 100'000'000);
        text += " bps=" + std::to_string(rule.bps) + "B";
      }
      if (rng_.chance(1, 3)) {
        rule.burst = rng_.between(1, 50);
        text += " burst=" + std::to_string(rule.burst);
      }
      model.start(rule, now_);
      live_.push_back(rule.name);
    }
    const auto parsed = parse_command(text, tbf_.type());
    ASSERT_TRUE(parsed) << text;
    ASSERT_TRUE(tbf_.apply(*parsed, instant_at(now_))) << text;
  }

  Rng rng_;
  std::int64_t now_ = 5 * kBillion;
  int commands_ = 0;
  std::deque<std::string> live_;
  std::map<int, std::unique_ptr<Request>> requests_;
  Tbf tbf_;
};

TEST(TbfModel, PredictsEveryDecision) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(Duel(seed).run(10'000, 100, 20), "") << "seed " << seed;
  }
}

TEST(TbfModel, CatchesARuleThatOnlyOneOfThemHas) {
  Duel duel(3);
  duel.model.start({"off", "job7", 1}, 5 * kBillion);
  EXPECT_NE(duel.run(10'000, 100, 20), "");
}

// ---- layers and common buckets, which the model does not know: limits hold, and all are served
// ----

// What ran under one rule of the whole rule's bucket (by=rule).
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
    Tbf tbf(FieldSet{Field::kJobid, Field::kUid}, Tbf::Options{});
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
}  // namespace weir
