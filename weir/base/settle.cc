// SPDX-License-Identifier: Apache-2.0
#include "weir/base/settle.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "weir/base/assert.h"

namespace weir {
namespace {

using Wide = unsigned __int128;
using SignedWide = __int128;

constexpr int kFractionBits = 32;
constexpr std::int64_t kOneToken = std::int64_t{1} << kFractionBits;
// Below this number of shares a heap is faster than counting digits.
constexpr std::size_t kSelectMin = 64;

// floor(weight * total * 2^32 / weight_sum). The product of all three may take 159 bits, so the
// division is done in two steps, each within 128: whole tokens, then the rest's fraction bits.
SignedWide share_of(std::uint64_t weight, std::uint64_t total, std::uint64_t weight_sum) {
  const Wide product = Wide{weight} * total;
  constexpr std::uint64_t kHalf = std::uint64_t{1} << kFractionBits;
  // Usual numbers need no long division.
  if (product < kHalf) return (static_cast<std::uint64_t>(product) << kFractionBits) / weight_sum;
  if (product <= UINT64_MAX && weight_sum < kHalf) {
    const auto low = static_cast<std::uint64_t>(product);
    const std::uint64_t rest = (low % weight_sum) << kFractionBits;
    return (SignedWide{low / weight_sum} << kFractionBits) + rest / weight_sum;
  }
  const Wide whole = product / weight_sum;
  const Wide rest = product - whole * weight_sum;
  return static_cast<SignedWide>((whole << kFractionBits) + (rest << kFractionBits) / weight_sum);
}

std::uint64_t sum_of_weights(std::span<const SettleShare> shares) {
  Wide sum = 0;
  for (const SettleShare& share : shares) sum += share.weight;
  WEIR_ASSERT(sum > 0 && sum <= UINT64_MAX, shares.size());
  return static_cast<std::uint64_t>(sum);
}

// Steps 2 and 3 are one, seen from two sides: the share of the highest rank moves one token, and
// its rank drops by one token. To give (sign +1) the rank is the remainder, to take back (sign -1)
// it is the negative of the remainder.
void move_token(SettleShare& share, int sign) {
  share.got += static_cast<std::uint64_t>(std::int64_t{sign});
  share.remainder -= sign * kOneToken;
}

// After step 1 every share above its minimum has a remainder from 0 up to, not including, one
// token. These are first, in order of remainder, and none twice before each of them once; so while
// `count` is at most their number, the shares that move a token are found by selection.
bool is_first_in_line(const SettleShare& share, int sign) {
  return sign > 0 ? share.remainder >= 0 : share.got > 0;
}

// A key for a remainder from 0 up to one token that is high for a high rank.
std::uint32_t key_of(const SettleShare& share, int sign) {
  const auto fraction = static_cast<std::uint32_t>(share.remainder);
  return sign > 0 ? fraction : ~fraction;
}

// Counts how many keys start with each digit, with as many bits as leave few keys per digit.
// For giving this is counted together with step 1, because another pass over many shares would
// be expensive.
class Digits {
 public:
  explicit Digits(std::size_t shares) : bits_(shares < kMany ? kBitsMin : kBitsMax) {
    std::fill_n(found_.begin(), std::size_t{1} << bits_, 0);
  }

  void add(std::uint32_t key) {
    ++found_[key >> (kFractionBits - bits_)];
    ++sum_;
  }
  int bits() const { return bits_; }
  std::uint64_t sum() const { return sum_; }
  std::span<const std::uint32_t> found() const { return {found_.data(), std::size_t{1} << bits_}; }

 private:
  static constexpr std::size_t kMany = 8192;
  static constexpr int kBitsMin = 8;
  static constexpr int kBitsMax = 11;

  int bits_;
  std::uint64_t sum_ = 0;
  std::array<std::uint32_t, 1 << kBitsMax> found_;  // the first 2^bits_ of them
};

// Finds the key of the share that is `count`-th in order, digit by digit, counting each time the
// keys that agree so far, until few are left; then these are sorted.
class LineSearch {
 public:
  LineSearch(std::span<const SettleShare> shares, int sign, std::uint64_t count,
             const Digits& first)
      : shares_(shares), sign_(sign), count_(count) {
    choose(first.found(), first.bits());
    while (shift_ > 0 && agreeing_ > few_.size()) find_digit();
    if (agreeing_ <= few_.size()) sort_few();
  }

  std::uint32_t key() const { return key_; }
  // How many shares with exactly this key move.
  std::uint64_t ties() const { return count_; }

 private:
  static constexpr int kDigitBits = 8;

  bool agrees(const SettleShare& share) const {
    return is_first_in_line(share, sign_) &&
           std::uint64_t{key_of(share, sign_)} >> shift_ == std::uint64_t{key_} >> shift_;
  }

  void find_digit() {
    std::array<std::uint32_t, 1 << kDigitBits> found{};
    const int bits = std::min(kDigitBits, shift_);
    const int next = shift_ - bits;
    const std::uint32_t mask = (std::uint32_t{1} << bits) - 1;
    for (const SettleShare& share : shares_) {
      if (agrees(share)) ++found[(key_of(share, sign_) >> next) & mask];
    }
    choose(std::span(found).first(std::size_t{1} << bits), bits);
  }

  // Chooses the next digit of the key from the counts.
  void choose(std::span<const std::uint32_t> found, int bits) {
    shift_ -= bits;
    std::size_t digit = found.size() - 1;
    for (; found[digit] < count_; --digit) count_ -= found[digit];
    agreeing_ = found[digit];
    key_ |= static_cast<std::uint32_t>(digit << shift_);
  }

  void sort_few() {
    auto end = few_.begin();
    for (const SettleShare& share : shares_) {
      if (agrees(share)) *end++ = key_of(share, sign_);
    }
    std::sort(few_.begin(), end, std::greater<>());
    key_ = few_[count_ - 1];
    count_ -= static_cast<std::uint64_t>(
        std::lower_bound(few_.begin(), end, key_, std::greater<>()) - few_.begin());
  }

  std::span<const SettleShare> shares_;
  int sign_;
  std::uint64_t count_;
  std::uint64_t agreeing_ = UINT64_MAX;
  std::uint32_t key_ = 0;
  int shift_ = kFractionBits;
  std::array<std::uint32_t, 64> few_{};
};

// The shares of the `count` highest keys move one token each, the first ones where keys are equal.
// REQUIRES: at least `count` are first in line; count > 0.
void move_one_each(std::span<SettleShare> shares, std::uint64_t count, int sign,
                   const Digits& digits) {
  const LineSearch search(shares, sign, count, digits);
  const std::uint32_t last = search.key();
  std::uint64_t ties = search.ties();
  for (SettleShare& share : shares) {
    const std::uint32_t key = key_of(share, sign);
    const bool in_line = is_first_in_line(share, sign);
    const bool is_tied = in_line && key == last && ties > 0;
    ties -= is_tied ? 1 : 0;
    // Half of them move, unpredictably: a branch would cost more than moving by zero.
    move_token(share, (in_line && key > last) || is_tied ? sign : 0);
  }
}

struct Candidate {
  std::int64_t rank;
  std::size_t index;

  // For the heaps of <algorithm>, whose front is the greatest: high rank first, then low index.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank < other.rank : index > other.index;
  }
};

// One after another, for any remainders.
void move_by_rank(std::span<SettleShare> shares, std::uint64_t count, int sign) {
  const auto may_move = [sign](const SettleShare& share) { return sign > 0 || share.got > 0; };
  std::vector<Candidate> heap;
  heap.reserve(shares.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (may_move(shares[i])) heap.push_back({sign * shares[i].remainder, i});
  }
  std::make_heap(heap.begin(), heap.end());
  for (; count > 0; --count) {
    WEIR_ASSERT(!heap.empty(), count);
    std::pop_heap(heap.begin(), heap.end());
    Candidate& moved = heap.back();
    SettleShare& share = shares[moved.index];
    move_token(share, sign);
    moved.rank -= kOneToken;
    if (may_move(share)) {
      std::push_heap(heap.begin(), heap.end());
    } else {
      heap.pop_back();
    }
  }
}

// `to_give` has the counts of the shares that are first in order.
void move_tokens(std::span<SettleShare> shares, std::uint64_t count, int sign,
                 const Digits& to_give) {
  if (sign > 0) {
    if (count <= to_give.sum()) return move_one_each(shares, count, sign, to_give);
    return move_by_rank(shares, count, sign);
  }
  Digits to_take(shares.size());
  for (const SettleShare& share : shares) {
    if (is_first_in_line(share, sign)) to_take.add(key_of(share, sign));
  }
  if (count <= to_take.sum()) return move_one_each(shares, count, sign, to_take);
  move_by_rank(shares, count, sign);
}

// Step 1, calls `note` for every share; returns how many tokens are missing after it.
template <class Note>
SignedWide share_out(std::span<SettleShare> shares, std::uint64_t total, Note note) {
  const std::uint64_t weight_sum = sum_of_weights(shares);
  SignedWide missing = total;
  for (SettleShare& share : shares) {
    WEIR_ASSERT(-kSettleRemainderMax <= share.remainder && share.remainder <= kSettleRemainderMax,
                share.remainder);
    const SignedWide want = share_of(share.weight, total, weight_sum) + share.remainder;
    const SignedWide got = std::max<SignedWide>(0, want >> kFractionBits);
    share.got = static_cast<std::uint64_t>(got);
    share.remainder = static_cast<std::int64_t>(want - (got << kFractionBits));
    missing -= got;
    note(share);
  }
  return missing;
}

void settle_few(std::span<SettleShare> shares, std::uint64_t total) {
  const SignedWide missing = share_out(shares, total, [](const SettleShare&) {});
  if (missing == 0) return;
  const int sign = missing > 0 ? +1 : -1;
  move_by_rank(shares, static_cast<std::uint64_t>(sign * missing), sign);
}

void settle_many(std::span<SettleShare> shares, std::uint64_t total) {
  Digits to_give(shares.size());
  const SignedWide missing = share_out(shares, total, [&to_give](const SettleShare& share) {
    if (is_first_in_line(share, +1)) to_give.add(key_of(share, +1));
  });
  if (missing == 0) return;
  const int sign = missing > 0 ? +1 : -1;
  move_tokens(shares, static_cast<std::uint64_t>(sign * missing), sign, to_give);
}

}  // namespace

void settle(std::span<SettleShare> shares, Tokens total) {
  WEIR_ASSERT(total.count() <= INT64_MAX, total.count());
  if (total.count() == 0) {
    for (SettleShare& share : shares) share.got = 0;
    return;
  }
  if (shares.size() < kSelectMin) {
    settle_few(shares, total.count());
  } else {
    settle_many(shares, total.count());
  }
}

}  // namespace weir
