// SPDX-License-Identifier: Apache-2.0
//
// Shares in more than one level: projects, their users, and the users' jobs, for example. Every
// node but the root has a share bucket and a weight. A request waits below a leaf, and takes from
// every bucket between the leaf and the root.
//
//                       root                      inner node   virtual time, children that can pay
//                 bio 2      chem 1                            in order of tags, children that lack
//             1001 1  1002 1    1003 1                         tokens in order of loans
//            ior.7 8   dd.1 1    cp.5 4           leaf         a job: it has requests or has none
//
//   ShareNode& user = tree.inner(tree.inner(tree.root(), bio), id);
//   ShareNode& job = tree.leaf(user);
//   tree.offer(job, rank, now);                   its limits allow a request to run
//   tree.wake(now);                               nodes whose bucket can pay by now
//   ShareNode* first = tree.first(rank);          the leaf to serve, or nullptr
//   tree.serve(*first, rank, cost, more, now);    takes the cost on its path, and moves the tags
//
// A node pays while its bucket holds a token; a larger request leaves a debt
// (docs/decisions/0018-a-share-of-a-tree-pays-while-it-holds-a-token.md). It is eligible if it pays
// and a leaf below it is eligible.
//
// Order. Start-time fair queueing in every inner node on its own: the eligible child with the
// smallest tag is first, then the first of its children, down to a leaf. Its tag starts at the
// virtual time of its parent when requests begin to wait below it, and grows by cost / weight. So a
// project gets its part whatever the number of its users.
//
// Loans. When no leaf is first, a leaf may run nevertheless. Let k be its deepest ancestor from
// which every node up to the root pays. The leaf with the deepest k is first: siblings borrow from
// each other before cousins do. Of several, the child of k that has borrowed least for its weight
// goes first, and below it the eligible child in order of tags, otherwise again the deepest k.
// Nodes on the path that pay are charged as usual; the others have borrowed the cost, which moves
// neither their tag nor the virtual time of their parent.
//
// Cost. A decision changes one entry of a small heap in every level. A node that does not change
// its place leaves its ancestors alone. No allocation, no search by key. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/hash.h"
#include "weir/base/heap.h"
#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"
#include "weir/pace/token_bucket.h"

namespace weir::tbf {

struct Queue;
struct ShareInner;
struct ShareNode;

// The kinds of requests below a leaf; each has an order of its own. Loans go to them in this order.
enum class Rank : std::uint8_t {
  kHigh,     // of the high-priority head
  kRegular,  // of the regular head
  kLater,    // of the regular head, while another group of clients is preferred
};
inline constexpr std::array kRanks = {Rank::kHigh, Rank::kRegular, Rank::kLater};

// The order of loans: by rank, then the deepest node that pays, then by tokens borrowed.
struct LoanKey {
  bool operator==(const LoanKey&) const = default;
  bool operator<(const LoanKey& other) const {
    return place != other.place ? place < other.place : tag < other.tag;
  }

  std::uint64_t place = UINT64_MAX;
  std::uint64_t tag = 0;
};

// The place of a node in its parent's order of one rank.
struct Standing {
  ShareNode* node = nullptr;
  std::uint64_t tag = 0;  // of the node, when it got this place
  HeapHook hook;
};

struct alignas(64) ShareNode {
  bool is_root() const { return parent == nullptr; }
  bool is_leaf() const { return inner == nullptr; }
  bool paces() const { return shape.has_value(); }

  ShareNode* parent = nullptr;
  std::uint64_t tag = 0;
  std::uint64_t tag_part = 0;  // in 1/weight
  std::uint64_t weight = 1;
  TokenBucket tokens = TokenBucket::empty(Instant::min());
  Instant pays_at = Instant::min();   // when the bucket holds a token
  std::uint64_t turn = 0;             // the number of nodes created before it: orders ties
  std::uint8_t depth = 0;             // 0: the root
  std::uint8_t offered = 0;           // of a leaf: ranks in which it has requests, as bits
  std::uint8_t listed = 0;            // ranks in whose order it stands
  bool occupied = false;              // a leaf at or below it has requests
  bool lacking = false;               // occupied, and does not pay
  bool active = false;                // set by the controller
  std::uint8_t plain = 0;             // of a leaf, for its owner: as `offered`
  std::unique_ptr<ShareInner> inner;  // of an inner node
  std::array<Queue*, 3> first{};      // of a leaf, by rank, for its owner
  std::array<Standing, 3> standings;
  std::optional<BucketShape> shape;  // none: it only determines the order

  // ---- loans ----
  std::uint64_t loan_tag = 0;
  std::uint64_t loan_part = 0;
  Tokens borrowed;
  Tokens lent;
  Tokens reserved;  // of requests that ran under a reservation
  Spill spill;
  LoanKey loan_key;  // its place among the borrowers of its parent
  HeapHook borrow_hook;
  Instant wakes_at = Instant::min();  // its place among nodes that lack tokens
  HeapHook wake_hook;

  std::uint32_t busy = 0;   // of a leaf: queues with requests; otherwise busy children
  std::uint32_t users = 0;  // of an inner node: children and holders
  JobId value;              // of an inner node: that of its level
};

struct ShareInner {
  std::uint64_t virtual_time = 0;
  std::array<Heap<Standing, std::uint64_t, &Standing::hook>, 3> order;  // by rank: eligible ones
  // Children that lack tokens, or below which some do.
  Heap<ShareNode, LoanKey, &ShareNode::borrow_hook> borrowers;
  std::uint32_t occupied = 0;  // children
};

class ShareTree {
 public:
  static constexpr std::size_t kLevelsMax = 8;

  // `levels`: of inner nodes; `unit`: of virtual time, for a token of weight 1; `ahead_max`: how
  // far reservations may move a tag ahead of virtual time; without lending no leaf borrows.
  ShareTree(std::size_t levels, std::uint64_t unit, std::uint64_t ahead_max, bool lending);
  ~ShareTree();
  ShareTree(const ShareTree&) = delete;
  ShareTree& operator=(const ShareTree&) = delete;

  // ---- nodes ----

  ShareNode& root() { return *root_; }
  // The inner node with this value, created if necessary: it is not paced, and its weight is 1.
  // REQUIRES: the parent is an inner node at a depth below kLevelsMax - 1.
  ShareNode& inner(ShareNode& parent, const JobId& value);
  ShareNode* find(const ShareNode& parent, const JobId& value) const;
  // A new leaf. It is not paced, and its weight is 1. REQUIRES: it gets requests only below an
  // inner node of the last level.
  ShareNode& leaf(ShareNode& parent);
  // Moves a leaf with its bucket and its requests below another inner node.
  void move(ShareNode& leaf, ShareNode& parent, Instant now);
  // Removes a leaf. REQUIRES: it has no requests.
  void remove(ShareNode& leaf);
  // An inner node stays while it has children, is held, or was set by the controller.
  static void hold(ShareNode& inner) { ++inner.users; }
  void release(ShareNode& inner) {
    --inner.users;
    prune(inner);
  }
  // The values of the levels down to an inner node.
  static std::vector<JobId> path_of(const ShareNode& inner);
  std::size_t nodes() const { return nodes_.size() - free_.size(); }

  // The share of a node but the root; a new bucket starts full, a changed one keeps its balance.
  // REQUIRES: weight > 0.
  void set(ShareNode& node, std::optional<Rate> rate, Tokens depth, std::uint64_t weight,
           Instant now);
  // The node is not paced from now on.
  void drop(ShareNode& node, Instant now);

  // ---- requests ----

  // A queue of the leaf gets its first request, or has lost its last one. Tokens that overflow
  // while nothing waits below a node are lent.
  static void become_busy(ShareNode& leaf, Instant now) { become_busy_above(leaf, now); }
  static void become_idle(ShareNode& leaf, Instant now) { become_idle_above(leaf, now); }

  // The leaf has requests of this rank within their limits, or has none. No effect if that is so.
  void offer(ShareNode& leaf, Rank rank, Instant now);
  void withdraw(ShareNode& leaf, Rank rank, Instant now);

  // ---- deciding; REQUIRES: wake(now) before ----

  void wake(Instant now) {
    while (!waking_.empty() && waking_.top_key() <= now) place(waking_.top(), now);
  }
  // When the next node that requests wait for pays; kNever if there is none.
  Instant next_wake() const { return waking_.empty() ? kNever : waking_.top_key(); }
  // The first leaf in order, or nullptr.
  ShareNode* first(Rank rank) const {
    const Standing* const standing = first_standing(rank);
    return standing == nullptr ? nullptr : standing->node;
  }
  // The first leaf will probably run next. With many leaves they are spread over memory. Inlined,
  // since GCC drops calls of functions that do nothing but prefetch.
  [[gnu::always_inline]] void prefetch_leaf(Rank rank) const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(first_standing(rank));
    if (bytes == nullptr) return;
    for (std::ptrdiff_t line = -1; line <= 3; ++line) __builtin_prefetch(bytes + line * 64);
  }
  // A request of the first leaf runs; `more`: another one of that rank takes its place. REQUIRES:
  // first(rank) is this leaf.
  void serve(ShareNode& leaf, Rank rank, Tokens cost, bool more, Instant now);

  bool has_borrowers() const { return !root_->inner->borrowers.empty(); }
  // The next leaf to borrow, and the rank of its request; nullptr if there is none. REQUIRES: no
  // leaf is first.
  std::pair<ShareNode*, Rank> borrower() const;
  // A request of that leaf runs. Returns the nodes that borrowed: bit 0 for depth 1, and so on.
  std::uint8_t lend(ShareNode& leaf, Rank rank, Tokens cost, bool more, Instant now);

  // A request of the leaf runs under a reservation, out of order. It is part of the share of every
  // node on its path, which may get into debt by up to its depth, and moves their tags at most
  // ahead_max ahead of virtual time. Returns whether the shares paid all of it.
  bool charge_reserved(ShareNode& leaf, Tokens cost, Instant now);

  // ---- surcharges and refunds; neither changes a tag ----

  // On the whole path.
  void charge(ShareNode& leaf, Tokens cost, Instant now);
  // A request that paid `paid` costs `due`; `borrowers`: the nodes that borrowed it instead.
  void settle(ShareNode& leaf, Tokens paid, Tokens due, std::uint8_t borrowers, Instant now);

  // Lends tokens that spilled from its bucket, or drops them if requests wait below it.
  static void settle_spill(ShareNode& node, Instant now);
  // Calls visit(node) for every node but the root, in no particular order. What nodes with nothing
  // waiting have spilled is in `lent`.
  template <class Visit>
  void each(Instant now, Visit visit) {
    for (ShareNode& node : nodes_) {
      if (node.is_root()) continue;  // or free
      settle_spill(node, now);
      visit(node);
    }
  }
  // Whether the invariants hold, for tests. O(nodes).
  bool is_valid(Instant now) const;

 private:
  struct ChildKey {
    const ShareNode* parent;
    JobId value;
    bool operator==(const ChildKey&) const = default;
  };
  struct ChildHash {
    std::size_t operator()(const ChildKey& key) const {
      return hash_words(key.value.hash(), key.parent->turn);
    }
  };

  // That of the first leaf, without a look at the leaf.
  const Standing* first_standing(Rank rank) const {
    const Standing* first = root_->inner->order[static_cast<std::size_t>(rank)].peek();
    if (first == nullptr) return nullptr;
    for (std::size_t level = 0; level < levels_; ++level) {
      first = first->node->inner->order[static_cast<std::size_t>(rank)].peek();
    }
    return first;
  }
  ShareNode& make(ShareNode* parent);
  void free(ShareNode& node);
  void prune(ShareNode& node);
  static void become_busy_above(ShareNode& node, Instant now);
  static void become_idle_above(ShareNode& node, Instant now);
  static std::uint8_t candidates(const ShareNode& node);
  void advance_order(ShareNode& node, Tokens cost) const;
  static void pay(ShareNode& node, Tokens cost, Instant now);
  static void rebalance(ShareNode& node);
  static std::optional<LoanKey> loan_key(const ShareNode& node);
  bool place_here(ShareNode& node, Instant now);
  void place_loan(ShareNode& node);
  void place(ShareNode& node, Instant now);

  std::size_t levels_;
  std::uint64_t unit_;
  std::uint64_t ahead_max_;
  bool lending_;
  std::deque<ShareNode> nodes_;
  std::vector<ShareNode*> free_;
  ShareNode* root_;
  std::uint64_t created_ = 0;
  absl::flat_hash_map<ChildKey, ShareNode*, ChildHash> inner_;
  std::array<std::uint64_t, kLevelsMax + 1> loan_time_{};   // virtual time of loans, by depth
  Heap<ShareNode, Instant, &ShareNode::wake_hook> waking_;  // nodes that lack tokens
};

}  // namespace weir::tbf
