// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/tree_allocator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/adapt/allocator_oracle_test.h"
#include "weir/base/rng.h"

namespace weir {
namespace {

using oracle::Number;
using oracle::Numbers;
using oracle::Page;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Setting {
  std::uint64_t rate = 1000;
  Nanoseconds period = milliseconds{10};
  std::optional<Nanoseconds> half_life = {};
  bool floor = false;
  std::uint64_t reserve_max = 0;
  std::size_t levels = 3;
  std::uint64_t moves_of_1000 = 5;
  bool lending = false;
  int restart_every = 0;  // periods
};

// The tree as documented: a page for every parent, found by its path.
class PlainTree {
 public:
  explicit PlainTree(const Setting& setting) : setting_(setting) {}

  struct Row {
    Number initial, redistributed, final, record;
  };
  std::map<std::string, Row> rows;
  Number budget = 0;
  bool keeps_records_of_the_moved = false;  // mistakes that the checker must find
  bool ignores_reservations = false;

  void period(const std::vector<TreeAllocator::Demand>& demands, const Numbers& weights) {
    std::map<std::string, Numbers> n, d, g;  // by parent, then child
    for (const TreeAllocator::Demand& one : demands) {
      const std::string job(one.job.text());
      std::string parent;
      std::vector<std::string> parents = {""};
      for (const JobId& value : one.path) {
        parent += (parent.empty() ? "" : "/") + std::string(value.text());
        parents.push_back(parent);
      }
      for (const std::string& each : parents) page_of(each);
      move(job, parent);
      const Number demand = one.demand.count();
      if (demand == 0) continue;
      const Number reserved = std::min(demand, whole_reserve(job, one.reserve));
      n[parent][job] = one.weight;
      d[parent][job] = demand;
      g[parent][job] = reserved;
      for (std::size_t i = 1; i < parents.size(); ++i) {
        const std::string last(one.path[i - 1].text());
        n[parents[i - 1]][last] = weights.contains(parents[i]) ? weights.at(parents[i]) : 1;
        d[parents[i - 1]][last] += demand;
        g[parents[i - 1]][last] += reserved;
      }
    }
    rows.clear();
    budget = d.empty() ? 0 : page_of("").next_budget();
    divide("", budget, n, d, g);
  }

  // Loans by parent, then child, before period().
  bool doubles_debts = false;
  void loans(std::map<std::string, Numbers> lent, const std::map<std::string, Numbers>& borrowed) {
    for (auto& [path, page] : pages_) {
      Numbers owed;
      for (const auto& [child, tokens] : lent[path]) {
        const auto prev = page.prev.find(child);
        const bool is_allotted = prev != page.prev.end() && prev->second > 0;
        if (is_allotted && tokens > 0) owed[child] = tokens;
      }
      const auto taken = borrowed.find(path);
      Numbers debts = taken == borrowed.end() ? Numbers{} : taken->second;
      if (doubles_debts) {
        for (auto& [child, tokens] : debts) tokens *= 2;
      }
      page.loans(owed, debts);
    }
  }

  Number records_under(const std::string& parent) { return oracle::sum_of(page_of(parent).r); }
  const std::map<std::string, Page>& pages() const { return pages_; }

 private:
  Page& page_of(const std::string& parent) {
    const auto [found, is_new] = pages_.try_emplace(parent);
    Page& page = found->second;
    if (is_new) {
      page.tokens = Number{setting_.rate} * setting_.period.count();
      page.parts = 1'000'000'000;
      page.floor = setting_.floor;
      page.ignores_reservations = ignores_reservations;
      if (setting_.half_life) page.fading = {setting_.period.count(), setting_.half_life->count()};
    }
    return page;
  }

  void move(const std::string& job, const std::string& parent) {
    const auto [found, is_new] = home_.try_emplace(job, parent);
    if (is_new || found->second == parent) return;
    if (!keeps_records_of_the_moved) page_of(found->second).write_off(job);
    found->second = parent;
    carry_.erase(job);
  }

  Number whole_reserve(const std::string& job, std::uint64_t reserve) {
    if (reserve == 0) return 0;
    const Number all = Number{reserve} * setting_.period.count() + carry_[job];
    carry_[job] = all % 1'000'000'000;
    return all / 1'000'000'000;
  }

  void divide(const std::string& parent, Number given, std::map<std::string, Numbers>& n,
              std::map<std::string, Numbers>& d, std::map<std::string, Numbers>& g) {
    Page& page = page_of(parent);
    page.part(given, n[parent], d[parent], g[parent]);
    const std::string before = parent.empty() ? "" : parent + "/";
    for (const auto& [child, ax] : page.a) {
      rows[before + child] = {ax, page.a_rd[child], page.a_rc[child], page.r[child]};
    }
    std::vector<std::string> inner;  // also those without a demand
    for (const auto& [path, other] : pages_) {
      const bool is_below = path != parent && path.starts_with(before);
      if (is_below && path.find('/', before.size()) == std::string::npos) inner.push_back(path);
    }
    const Numbers finals = page.a_rc;
    for (const std::string& path : inner) {
      const std::string last = path.substr(before.size());
      divide(path, finals.contains(last) ? finals.at(last) : 0, n, d, g);
    }
  }

  Setting setting_;
  std::map<std::string, Page> pages_;
  std::map<std::string, std::string> home_;
  Numbers carry_;
};

// ---- random periods ----

struct Drawn {
  std::vector<TreeAllocator::Demand> demands;
  Numbers weights;
  std::vector<TreeAllocator::Loan> loans;
  std::map<std::string, Numbers> lent, borrowed;  // the same, by parent and child
};

class Draw {
 public:
  Draw(const Setting& setting, std::uint64_t seed) : setting_(setting), rng_(seed) {
    for (std::size_t i = 0; i < 6; ++i) {
      TreeAllocator::Demand& job = jobs_.emplace_back();
      job.job = JobId(fmt::format("j{}", i * 7919 % 100));
      job.path = path();
      job.weight = 1 + rng_.below(5);
      if (setting.reserve_max > 0 && rng_.chance(1, 2))
        job.reserve = rng_.below(setting.reserve_max);
    }
  }

  const Drawn& next() {
    if (rng_.chance(1, 50)) {
      const std::uint64_t project = rng_.below(2);
      drawn_.weights[fmt::format("p{}", project)] = Number{1 + rng_.below(9)};
      drawn_.weights[fmt::format("p{}/u{}", project, rng_.below(2))] = Number{1 + rng_.below(9)};
    }
    drawn_.demands.clear();
    for (TreeAllocator::Demand& job : jobs_) {
      if (rng_.chance(setting_.moves_of_1000, 1000)) job.path = path();
      if (rng_.chance(1, 3)) continue;
      job.demand = Tokens{rng_.chance(1, 6) ? 0 : rng_.below(rng_.chance(1, 4) ? 40 : 6)};
      drawn_.demands.push_back(job);
    }
    if (rng_.chance(1, 100)) drawn_.demands.clear();
    draw_loans();
    return drawn_;
  }

 private:
  // Of jobs, and of the nodes above them.
  void draw_loans() {
    drawn_.loans.clear();
    drawn_.lent.clear();
    drawn_.borrowed.clear();
    if (!setting_.lending || rng_.chance(1, 4)) return;
    for (const TreeAllocator::Demand& job : jobs_) {
      std::vector<JobId> names = job.path;
      names.push_back(job.job);
      std::string parent;
      for (std::size_t size = 1; size <= names.size(); ++size) {
        const std::string child(names[size - 1].text());
        const bool is_new = !drawn_.lent[parent].contains(child);
        if (is_new && rng_.chance(1, 2)) {
          const std::uint64_t lent = rng_.below(5);
          const std::uint64_t borrowed = rng_.below(5);
          drawn_.lent[parent][child] = lent;
          if (borrowed > 0) drawn_.borrowed[parent][child] = borrowed;
          drawn_.loans.push_back({.path = {names.begin(), names.begin() + static_cast<long>(size)},
                                  .lent = Tokens{lent},
                                  .borrowed = Tokens{borrowed}});
        }
        parent += (parent.empty() ? "" : "/") + child;
      }
    }
  }
  std::vector<JobId> path() {
    std::vector<JobId> path;
    if (setting_.levels > 1) path.emplace_back(fmt::format("p{}", rng_.below(2)));
    if (setting_.levels > 2) path.emplace_back(fmt::format("u{}", rng_.below(2)));
    return path;
  }

  Setting setting_;
  Rng rng_;
  std::vector<TreeAllocator::Demand> jobs_;
  Drawn drawn_;
};

// The first difference, or nothing.
std::string compare(PlainTree plain, const Setting& setting, std::uint64_t seed, int periods) {
  const Allocator::Options options{.rate = Rate::per_second(setting.rate),
                                   .period = setting.period,
                                   .half_life = setting.half_life,
                                   .floor = setting.floor};
  auto made = std::make_unique<TreeAllocator>(options);
  Draw draw(setting, seed);
  std::vector<TreeAllocator::Node> nodes;
  for (int i = 0; i < periods; ++i) {
    if (setting.restart_every > 0 && i % setting.restart_every == 0) {
      const TreeAllocator::State state = made->state();
      made = std::make_unique<TreeAllocator>(options);
      if (!made->restore(state, setting.levels - 1)) return "not restored";
    }
    TreeAllocator& tree = *made;
    const Drawn& drawn = draw.next();
    if (setting.lending) {
      plain.loans(drawn.lent, drawn.borrowed);
      tree.settle_loans(drawn.loans);
    }
    plain.period(drawn.demands, drawn.weights);
    const auto weight_of = [&](std::string_view path) -> std::uint64_t {
      const auto found = drawn.weights.find(std::string(path));
      return found == drawn.weights.end() ? 1 : static_cast<std::uint64_t>(found->second);
    };
    const Tokens budget = tree.allocate(drawn.demands, weight_of, nodes);
    const std::string where = fmt::format("seed {} period {}: ", seed, i);
    if (Number{budget.count()} != plain.budget) return where + "budget";
    if (nodes.size() != plain.rows.size()) return where + "active nodes";
    Number sum = 0;
    for (const TreeAllocator::Node& node : nodes) {
      if (!plain.rows.contains(node.path)) return where + node.path + " is not active";
      const PlainTree::Row& row = plain.rows[node.path];
      const JobPeriod& got = node.period;
      if (row.initial != Number{got.initial.count()}) return where + node.path + " initial";
      if (row.redistributed != Number{got.redistributed.count()}) {
        return where + node.path + " redistributed";
      }
      if (row.final != Number{got.final.count()}) return where + node.path + " final";
      if (row.record != Number{got.record}) return where + node.path + " record";
      if (node.path.find('/') == std::string::npos) sum += row.final;
    }
    if (sum != plain.budget) return where + "the budget is not divided";
    for (const auto& [parent, page] : plain.pages()) {
      if (oracle::sum_of(page.r) != 0) return where + "records under " + parent;
    }
  }
  return "";
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {},
      {.rate = 1333, .half_life = seconds{1}, .floor = true},
      {.rate = 777, .reserve_max = 400},
      {.rate = 5000, .half_life = seconds{60}, .floor = true, .reserve_max = 1500},
      {.rate = 100, .half_life = milliseconds{500}, .reserve_max = 3000},  // more than the budget
      {.rate = 3000, .levels = 2, .moves_of_1000 = 50},
      {.rate = 901, .floor = true, .reserve_max = 600, .levels = 2, .moves_of_1000 = 100},
      {.rate = 901, .half_life = seconds{2}, .reserve_max = 600, .levels = 1},
      {.rate = 1203, .half_life = seconds{60}, .floor = true, .lending = true},
      {.rate = 555, .reserve_max = 300, .levels = 2, .moves_of_1000 = 40, .lending = true},
  };
  return all;
}

TEST(TreeAllocator, EqualsThePlainTreeInEveryPeriod) {
  for (std::size_t i = 0; i < settings().size(); ++i) {
    EXPECT_EQ(compare(PlainTree(settings()[i]), settings()[i], i + 1, 10'000), "");
  }
}

TEST(TreeAllocator, TheComparisonFindsMistakes) {
  PlainTree keeps(settings()[5]);
  keeps.keeps_records_of_the_moved = true;
  EXPECT_NE(compare(keeps, settings()[5], 6, 2000), "");
  PlainTree ignores(settings()[2]);
  ignores.ignores_reservations = true;
  PlainTree mixes(settings()[8]);
  mixes.doubles_debts = true;
  EXPECT_NE(compare(mixes, settings()[8], 9, 2000), "");
  EXPECT_NE(compare(ignores, settings()[2], 3, 2000), "");
}

// The plain tree never stops.
TEST(TreeAllocator, DecidesAfterARestartAsIfThereHadBeenNone) {
  for (const std::size_t i : {0U, 1U, 5U, 8U}) {
    Setting setting = settings()[i];
    setting.restart_every = 37;
    EXPECT_EQ(compare(PlainTree(setting), setting, i + 1, 3000), "");
  }
}

// The state of a tree of projects, in which a and b of project p owe each other tokens.
TreeAllocator::State saved_state() {
  TreeAllocator::State state;
  state.nodes.resize(2);
  const auto add = [&](std::size_t node, const char* name, std::int64_t record) {
    auto& accounts = state.nodes[node].allocator.ledger.accounts;
    accounts.emplace_back().job = JobId(name);
    accounts.back().record = record;
  };
  add(0, "p", 0);
  state.nodes[1].path = {JobId("p")};
  add(1, "a", 7);
  add(1, "b", -7);
  return state;
}

TEST(TreeAllocator, RefusesAStateThatCannotBeAndKeepsItsOwn) {
  TreeAllocator tree({.rate = Rate::per_second(1000), .period = milliseconds{10}});
  ASSERT_TRUE(tree.restore(saved_state(), 1));
  EXPECT_EQ(tree.leaves(), 2U);
  EXPECT_EQ(tree.inner_nodes(), 1U);
  const auto refused = [&](const auto& spoil, std::size_t levels = 1) {
    TreeAllocator::State state = saved_state();
    spoil(state.nodes);
    const auto restored = tree.restore(state, levels);
    EXPECT_EQ(tree.account_of(JobId("a"))->record, 7);
    return restored ? "restored" : restored.error().what;
  };
  const auto accounts = [](auto& node) -> auto& { return node.allocator.ledger.accounts; };
  EXPECT_EQ(refused([&](auto& nodes) { accounts(nodes[1])[0].record = 8; }),
            "they do not sum to 0");
  EXPECT_EQ(refused([](auto& nodes) { nodes.push_back(nodes[1]); }), "a node is given twice");
  EXPECT_EQ(refused([](auto& nodes) { nodes[1].path = {JobId("q")}; }), "a node has no account");
  EXPECT_EQ(refused([&](auto& nodes) { accounts(nodes[0])[0].job = JobId("p/q"); }),
            "a node has no name, or a slash in it");
  EXPECT_EQ(refused([](auto&) {}, 0), "a node is below the last level");
  EXPECT_EQ(refused([&](auto& nodes) {
              accounts(nodes[0]).emplace_back().job = JobId("q");
              nodes.push_back(nodes[1]);
              nodes[2].path = {JobId("q")};
            }),
            "a job has two places");
}

TEST(TreeAllocator, OneLevelIsTheAllocator) {
  const Setting setting{.rate = 901, .half_life = seconds{2}, .floor = true, .levels = 1};
  const Allocator::Options options{.rate = Rate::per_second(setting.rate),
                                   .period = setting.period,
                                   .half_life = setting.half_life,
                                   .floor = setting.floor};
  TreeAllocator tree(options);
  Allocator flat(options);
  Draw draw(setting, 7);
  std::vector<TreeAllocator::Node> nodes;
  std::vector<JobPeriod> jobs;
  for (int i = 0; i < 5'000; ++i) {
    std::vector<TreeAllocator::Demand> demands = draw.next().demands;
    std::vector<Allocator::Demand> plain;
    plain.reserve(demands.size());
    for (const auto& one : demands) plain.push_back({one.job, one.weight, one.demand});
    std::sort(plain.begin(), plain.end(), [](auto& a, auto& b) { return a.job < b.job; });
    const Tokens budget = tree.allocate(
        demands, [](auto) { return 1; }, nodes);
    ASSERT_EQ(flat.allocate(plain, jobs), budget);
    ASSERT_EQ(nodes.size(), jobs.size());
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      ASSERT_EQ(nodes[j].path, jobs[j].job.text());
      ASSERT_EQ(nodes[j].period.initial, jobs[j].initial);
      ASSERT_EQ(nodes[j].period.final, jobs[j].final);
      ASSERT_EQ(nodes[j].period.record, jobs[j].record);
    }
  }
}

// Three levels, 10 x 10 x 10, all backlogged: every level is divided by its weights.
TEST(TreeAllocator, EntitlementsHoldAtEveryLevel) {
  TreeAllocator tree({.rate = Rate::per_second(20'000), .period = milliseconds{20}});
  std::vector<TreeAllocator::Demand> demands;
  demands.reserve(1000);
  for (int i = 0; i < 1000; ++i) {
    demands.push_back(
        {.path = {JobId(fmt::format("p{}", i / 100)), JobId(fmt::format("u{}", i / 10 % 10))},
         .job = JobId(fmt::format("j{:03}", i)),
         .weight = static_cast<std::uint64_t>(i % 10 + 1),
         .demand = Tokens{1000}});
  }
  const auto weight_of = [](std::string_view path) {
    return static_cast<std::uint64_t>(path.back() - '0' + 1);
  };
  std::map<std::string, double> sums;
  std::vector<TreeAllocator::Node> nodes;
  constexpr int kPeriods = 150;
  double all = 0;
  for (int i = 0; i < kPeriods; ++i) {
    all += static_cast<double>(tree.allocate(demands, weight_of, nodes).count());
    for (const auto& node : nodes)
      sums[node.path] += static_cast<double>(node.period.final.count());
  }
  for (const auto& [path, sum] : sums) {
    double entitled = all;
    for (std::size_t at = 0; at != std::string::npos;) {
      at = path.find('/', at + 1);
      const std::string node = path.substr(0, at);
      entitled *= static_cast<double>(node.back() - '0' + 1) / 55;
    }
    EXPECT_NEAR(sum, entitled, entitled / 100 + 3) << path;
  }
}

TEST(TreeAllocator, AReservationIsPartOfTheShare) {
  TreeAllocator tree({.rate = Rate::per_second(1000), .period = milliseconds{100}});
  std::vector<TreeAllocator::Demand> demands = {
      {.path = {JobId("db")}, .job = JobId("slurm"), .demand = Tokens{90}, .reserve = 500},
      {.path = {JobId("users")}, .job = JobId("scan"), .weight = 9, .demand = Tokens{1000}}};
  const auto weight_of = [](std::string_view path) -> std::uint64_t {
    return path == "users" ? 9 : 1;
  };
  std::vector<TreeAllocator::Node> nodes;
  EXPECT_EQ(tree.allocate(demands, weight_of, nodes), Tokens{100});
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(nodes[0].path, "db");
  EXPECT_EQ(nodes[0].period.initial, Tokens{50}) << "not 10 by weight";
  EXPECT_EQ(nodes[2].path, "users");
  EXPECT_EQ(nodes[2].period.initial, Tokens{50});
  EXPECT_EQ(nodes[3].path, "users/scan");
}

}  // namespace
}  // namespace weir
