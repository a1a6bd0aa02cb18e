// SPDX-License-Identifier: Apache-2.0
//
// The allocation as documented, with maps and linear scans: a second implementation for comparison.
// A Page is one target, or one parent in a tree, in tokens and 128 bits:
//
//   page.period(nodes, demand);                  the whole target
//   page.part(budget, weights, demand, reserved) a parent whose budget is given
//
// It can make typical mistakes on purpose, so that tests show that the comparison finds them. For
// tests only.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace weir::oracle {

using Number = __int128;
using Numbers = std::map<std::string, Number>;

inline constexpr Number kOne = 1 << 20;
inline constexpr Number kToken = Number{1} << 32;

inline Number sum_of(const Numbers& numbers) {
  Number sum = 0;
  for (const auto& [job, number] : numbers) sum += number;
  return sum;
}

struct Page {
  // Options of the algorithm.
  Number tokens = 1;  // T * dt = tokens / parts
  Number parts = 1;
  std::optional<std::pair<Number, Number>> fading;  // dt, h
  bool floor = false;
  // Typical mistakes, which the checkers must find.
  bool forgets_remainders = false;
  bool forgets_records_of_the_idle = false;
  bool drops_the_carry = false;
  bool ties_go_to_the_last = false;
  bool ignores_reservations = false;

  Numbers r, rho, prev, rho_fade, rho_lent, rho_borrowed;
  Number carry = 0, carry_fade = 0;
  Numbers n, d, a, a_rd, a_rc;
  Numbers g;  // reserved
  Number budget = 0;

  Numbers settle(const Numbers& weight, Number total, Numbers& remainder) const {
    Numbers got;
    if (total == 0) {
      for (const auto& [x, w] : weight) got[x] = 0;
      return got;
    }
    const Number weight_sum = sum_of(weight);
    for (const auto& [x, w] : weight) {
      const Number old = forgets_remainders ? Number{0} : remainder[x];
      const Number want = w * total * kToken / weight_sum + old;
      got[x] = want < 0 ? Number{0} : want / kToken;
      remainder[x] = want - got[x] * kToken;
    }
    const auto before = [this](Number p, Number q) { return ties_go_to_the_last ? p <= q : p < q; };
    Number given = sum_of(got);
    for (; given < total; ++given) {
      const std::string* best = nullptr;
      for (const auto& [x, count] : got) {
        if (best == nullptr || before(remainder[*best], remainder[x])) best = &x;
      }
      got[*best] += 1;
      remainder[*best] -= kToken;
    }
    for (; given > total; --given) {
      const std::string* best = nullptr;
      for (const auto& [x, count] : got) {
        if (count > 0 && (best == nullptr || before(remainder[x], remainder[*best]))) best = &x;
      }
      got[*best] -= 1;
      remainder[*best] += kToken;
    }
    return got;
  }

  void loans(const Numbers& lent, const Numbers& borrowed) {
    const Number matched = std::min(sum_of(lent), sum_of(borrowed));
    if (matched == 0) return;
    for (const auto& [x, credit] : settle(lent, matched, rho_lent)) r[x] += credit;
    for (const auto& [x, debit] : settle(borrowed, matched, rho_borrowed)) r[x] -= debit;
  }

  // n and d of the active jobs.
  void period(const Numbers& nodes, const Numbers& demand) {
    n = nodes;
    d = demand;
    a.clear(), a_rd.clear(), a_rc.clear();
    budget = 0;
    if (!d.empty()) {
      budget = next_budget();
      steps();
    }
    end();
  }

  Number next_budget() {
    const Number all = tokens + carry;
    carry = drops_the_carry ? Number{0} : all % parts;
    return all / parts;
  }

  void end() {
    prev = a_rc;
    fade();
    if (forgets_records_of_the_idle) {
      for (auto& [x, record] : r) record = d.contains(x) ? record : 0;
    }
  }

  // A parent in a tree: its budget is given, and children may have reservations.
  void part(Number given, const Numbers& weights, const Numbers& demand, const Numbers& reserved) {
    n = weights;
    d = demand;
    g = reserved;
    a.clear(), a_rd.clear(), a_rc.clear();
    budget = given;
    if (!d.empty()) steps();
    end();
    g.clear();
  }

  Numbers initial() {
    if (sum_of(g) == 0) return settle(n, budget, rho);
    Numbers got, rest = n;
    if (budget < sum_of(g)) {
      Numbers some;
      for (const auto& [x, gx] : g) {
        if (gx > 0) some[x] = gx;
      }
      for (const auto& [x, dx] : d) got[x] = 0;
      for (const auto& [x, ax] : settle(some, budget, rho)) got[x] = ax;
      return got;
    }
    for (;;) {
      Number left = budget;
      for (const auto& [x, gx] : g) left -= rest.contains(x) ? 0 : gx;
      Numbers trial = rho;
      const Numbers shares = settle(rest, left, trial);
      got = g;
      bool moves = false;
      for (const auto& [x, ax] : shares) {
        got[x] = ax;
        if (ax < g[x] && !ignores_reservations) moves = rest.erase(x) > 0;
      }
      if (moves) continue;
      rho = trial;
      return got;
    }
  }

  // A job that continues elsewhere.
  void write_off(const std::string& job) {
    const Number rest = r.contains(job) ? r[job] : 0;
    for (Numbers* numbers : {&r, &rho, &prev, &rho_fade, &rho_lent, &rho_borrowed}) {
      numbers->erase(job);
    }
    Numbers others;
    for (const auto& [x, record] : r) {
      if ((rest > 0 && record < 0) || (rest < 0 && record > 0)) {
        others[x] = record < 0 ? -record : record;
      }
    }
    for (const auto& [x, lost] : settle(others, rest < 0 ? -rest : rest, rho_fade)) {
      r[x] += rest > 0 ? lost : -lost;
    }
  }

  void steps() {
    a = initial();
    const Number nsum = sum_of(n);
    Numbers u, df, s, r_rd;
    for (const auto& [x, dx] : d) {
      const Number divisor = prev.contains(x) && prev[x] != 0 ? prev[x] : a[x] != 0 ? a[x] : 1;
      u[x] = std::min(dx * kOne / divisor, Number{1} << 40);
      df[x] = u[x] > kOne ? u[x] + u[x] * n[x] / nsum : u[x] * n[x] / nsum;
      s[x] = std::max(Number{0}, a[x] - dx);
    }
    if (sum_of(df) == 0) {
      for (auto& [x, sx] : s) sx = 0;
    }
    Numbers share = settle(df, sum_of(s), rho);
    for (const auto& [x, dx] : d) {
      a_rd[x] = a[x] - s[x] + share[x];
      r_rd[x] = r[x] + s[x] - share[x];
    }
    a_rc = a_rd;
    const Numbers before = r;
    for (const auto& [x, dx] : d) r[x] = r_rd[x];
    repay(before, r_rd, u, df, nsum);
  }

  void repay(const Numbers& before, Numbers& r_rd, Numbers& u, Numbers& df, Number nsum) {
    std::set<std::string> plus, minus;
    Numbers factors;
    Number coefficient = 0;
    for (const auto& [x, dx] : d) {
      const Number rx = before.contains(x) ? before.at(x) : 0;
      if (rx > 0 && r_rd[x] > 0) plus.insert(x), factors[x] = df[x];
      if (rx < 0 && r_rd[x] < 0) minus.insert(x);
    }
    if (plus.empty() || minus.empty() || sum_of(factors) == 0) return;
    for (const std::string& x : plus) {
      const Number ubar = a_rd[x] == 0 ? d[x] * kOne : d[x] * kOne / a_rd[x];
      coefficient += n[x] * (std::max(kOne, u[x]) + std::max(Number{0}, kOne - ubar)) / (2 * nsum);
    }
    Number repaid = 0;
    for (const std::string& x : minus) {
      Number t = std::min({-before.at(x), coefficient * a_rd[x] / kOne, a_rd[x]});
      if (floor) t = std::min(t, std::max(Number{0}, a_rd[x] - a[x] / 2));
      if (g.contains(x)) t = std::min(t, std::max(Number{0}, a_rd[x] - g[x]));
      a_rc[x] -= t;
      r[x] += t;
      repaid += t;
    }
    if (repaid == 0) return;
    for (const auto& [x, back] : settle(factors, repaid, rho)) {
      a_rc[x] += back;
      r[x] -= back;
    }
  }

  void fade() {
    if (!fading) return;
    const auto [dt, h] = *fading;
    Numbers positive, negative;
    for (const auto& [x, record] : r) {
      if (record > 0) positive[x] = record;
      if (record < 0) negative[x] = -record;
    }
    const Number all = sum_of(positive) * dt * 726817 + carry_fade;
    carry_fade = all % (h * kOne);
    const Number faded = std::min(all / (h * kOne), sum_of(positive));
    if (faded == 0) return;
    for (const auto& [x, lost] : settle(positive, faded, rho_fade)) r[x] -= lost;
    for (const auto& [x, lost] : settle(negative, faded, rho_fade)) r[x] += lost;
  }
};

}  // namespace weir::oracle
