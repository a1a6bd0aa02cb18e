// SPDX-License-Identifier: Apache-2.0
//
// A second Gate with fifo, crrn and tbf, slow and plain, that predicts every decision of the first:
// which request runs, and if none does, the nanosecond at which one will. Balances are whole
// numbers of billionths of a token, so that it is exact without fractions; every decision of tbf
// looks at every class.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/crrn.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/tbf.h"

namespace weir {
namespace {

using Wide = __int128;
constexpr std::int64_t kBillion = 1'000'000'000;
constexpr std::int64_t kEnd = INT64_MAX;

// Mistakes of the model, to see that each is noticed.
enum class Flaw : std::uint8_t {
  kNone,
  kDepthOffByOne,
  kRefillsOnChange,
  kForgetsRank,
  kRealtimeIsNotFirst,
  kDrainsNewestFirst,
  kDrainsBeforeTheOneInForce,
  kPromotedStaysInLine,
  kDeferredKeepsItsSlot,
  kResumedWaitsForItsTurn,
  kResumedHeadsAreAlike,
  kAbandonedStaysCharged,
  kNothingIsSettled,
  kRefundsWhatAnotherPaid,
  kExemptIsFree,
  // Of crrn.
  kReturnsToItsBatch,
  kPauseKeepsTheRound,
  kLateComersGoFirst,
};

struct ModelRequest {
  int id = 0;
  int job = 0;
  int client = 0;
  std::int64_t bytes = 0;
  std::int64_t arrival = 0;  // among those of its policy
};

class ModelPolicy {
 public:
  struct Offer {
    int id = -1;  // of the request that runs, or none
    std::int64_t until = kEnd;
  };
  virtual ~ModelPolicy() = default;
  virtual void admit(const ModelRequest& request, std::int64_t now) = 0;
  virtual Offer pick(std::int64_t now, Urge urge) = 0;
  virtual void remove(const ModelRequest& request, std::int64_t now) = 0;
  // It moved so many bytes, or none at all because it never began.
  static constexpr std::int64_t kNotStarted = -1;
  virtual void settle(const ModelRequest&, std::int64_t /*moved*/, std::int64_t /*now*/) {}
  virtual void charge(const ModelRequest&, std::int64_t /*now*/) {}
};

class ModelFifo final : public ModelPolicy {
 public:
  void admit(const ModelRequest& request, std::int64_t) override { ids_.push_back(request.id); }
  Offer pick(std::int64_t, Urge) override {
    const int first = ids_.front();
    ids_.pop_front();
    return {first};
  }
  void remove(const ModelRequest& request, std::int64_t) override { std::erase(ids_, request.id); }

 private:
  std::deque<int> ids_;
};

// Round robin as an administrator would describe it, without stamps: rounds are served one after
// the other, and a round is a line of batches in the order in which they were begun. A client has
// at most one batch in a round. A request joins its client's last batch while that has room, is not
// of a past round, and the client has others waiting; else it begins a batch, one round after the
// client's last one or in the round that is served now, whichever is later.
class ModelCrrn final : public ModelPolicy {
 public:
  explicit ModelCrrn(int clients, std::uint64_t quantum = 8, Flaw flaw = Flaw::kNone)
      : clients_(static_cast<std::size_t>(clients)), quantum_(quantum), flaw_(flaw) {}

  void set_quantum(std::uint64_t quantum) { quantum_ = quantum; }

  void admit(const ModelRequest& request, std::int64_t) override {
    Client& client = clients_[static_cast<std::size_t>(request.client)];
    const bool may_go_on = client.waiting > 0 || flaw_ == Flaw::kReturnsToItsBatch;
    if (client.room == 0 || !may_go_on || client.round < served_) begin_batch(request.client);
    --client.room;
    ++client.waiting;
    line_of(request.client).push_back(request.id);
  }
  Offer pick(std::int64_t, Urge) override {
    Batch& batch = first().batch;
    const int id = batch.ids.front();
    batch.ids.pop_front();
    left(batch.client);
    move_on();
    return {id};
  }
  void remove(const ModelRequest& request, std::int64_t) override {
    const bool was_first = first().batch.ids.front() == request.id;
    for (auto& [round, batches] : rounds_) {
      for (Batch& batch : batches) std::erase(batch.ids, request.id);
    }
    left(request.client);
    if (was_first) move_on();
  }
  bool empty() const { return waiting() == 0; }
  std::size_t waiting() const {
    std::size_t sum = 0;
    for (const Client& client : clients_) sum += client.waiting;
    return sum;
  }

 private:
  struct Client {
    std::int64_t round = -1;  // of its last batch
    std::uint64_t room = 0;   // in it
    std::size_t waiting = 0;
  };
  struct Batch {
    int client;
    std::deque<int> ids;
  };

  void begin_batch(int number) {
    Client& client = clients_[static_cast<std::size_t>(number)];
    client.round = std::max(client.round + 1, served_);
    client.room = quantum_;
    auto& batches = rounds_[client.round];
    if (flaw_ == Flaw::kLateComersGoFirst) {
      batches.push_front({number, {}});
    } else {
      batches.push_back({number, {}});
    }
  }
  std::deque<int>& line_of(int number) {
    auto& batches = rounds_[clients_[static_cast<std::size_t>(number)].round];
    return std::find_if(batches.begin(), batches.end(),
                        [&](const Batch& batch) { return batch.client == number; })
        ->ids;
  }
  struct First {
    std::int64_t round;
    Batch& batch;
  };
  First first() {
    for (auto& [round, batches] : rounds_) {
      for (Batch& batch : batches) {
        if (!batch.ids.empty()) return {round, batch};
      }
    }
    std::abort();  // asked for a request where none waits
  }
  void left(int number) { --clients_[static_cast<std::size_t>(number)].waiting; }
  // The first of all has left: the round that is served is that of the next one.
  void move_on() {
    if (empty()) {
      if (flaw_ != Flaw::kPauseKeepsTheRound) ++served_;
    } else {
      served_ = std::max(served_, first().round);
    }
    rounds_.erase(rounds_.begin(), rounds_.lower_bound(served_));
  }

  std::vector<Client> clients_;
  std::map<std::int64_t, std::deque<Batch>> rounds_;  // from the one that is served on
  std::uint64_t quantum_;
  Flaw flaw_;
  std::int64_t served_ = 0;
};

// A rule for one job or client, or for all of them.
struct ModelRule {
  static constexpr int kAll = -1;
  int key = kAll;
  std::int64_t rate = 0;   // 0: none
  std::int64_t bps = 0;    // 0: none
  std::int64_t burst = 0;  // 0: by the rate
  bool realtime = false;
};

class ModelTbf final : public ModelPolicy {
 public:
  enum class By : std::uint8_t { kJob, kClient };
  static constexpr int kDefault = 0;  // the number of the default rule; others count up from it

  ModelTbf(By by, int keys, Flaw flaw)
      : by_(by), flaw_(flaw), queues_(static_cast<std::size_t>(keys)) {
    make({.rate = 10'000});
    order_.push_back(kDefault);
  }

  // Directly before another rule, or first. Its number.
  int start(const ModelRule& rule, int before, std::int64_t now) {
    ++payers_;
    const int number = make(rule);
    insert(number, before);
    come_again(-1, now);
    return number;
  }
  void change(int number, const ModelRule& limits, std::int64_t now) {
    const ModelRule before = std::exchange(rules_[at(number)], limits);
    if ((before.rate == 0) != (limits.rate == 0)) ++payers_;
    for (Class& c : classes_[at(number)]) {
      if (c.known) reshape(c, limits, now);
    }
    come_again(number, now);
  }
  void rank(int number, int before, std::int64_t now) {
    if (number != before && flaw_ != Flaw::kForgetsRank) {
      const std::vector<int> order = order_;
      std::erase(order_, number);
      insert(number, before);
      if (order != order_) ++payers_;
    }
    come_again(-1, now);
  }
  void stop(int number, std::int64_t now) {
    ++payers_;
    std::erase(order_, number);
    come_again(-1, now);
    classes_[at(number)].clear();
  }
  const ModelRule& rule(int number) const { return rules_[at(number)]; }

  void admit(const ModelRequest& request, std::int64_t now) override {
    const int key = key_of(request);
    Queue& queue = queues_[at(key)];
    queue.requests.push_back(request);
    queue.requests.back().arrival = arrivals_++;
    if (queue.requests.size() > 1) return;
    busy_.push_back(key);
    queue.rule = match(key);
    enter(key, now);
  }

  Offer pick(std::int64_t now, Urge urge) override {
    if (urge == Urge::kForce) {
      const int key = flaw_ == Flaw::kDrainsNewestFirst ? busy_.back() : busy_.front();
      return {take_first(key, now).id};
    }
    for (;;) {
      Offer offer;
      const Queue* best = nullptr;
      int best_key = 0;
      for (const int key : busy_) {
        Queue& queue = queues_[at(key)];
        if (!queue.is_let_go && queue.ready <= now) wake(key, now);
        if (!queue.is_let_go) {
          offer.until = std::min(offer.until, queue.ready);
        } else if (best == nullptr || queue.tag < best->tag ||
                   (queue.tag == best->tag && queue.order < best->order)) {
          best = &queue;
          best_key = key;
        }
      }
      if (best == nullptr) return offer;
      // It may have been charged since it was let go.
      Class& c = class_of(best_key, now);
      const ModelRequest& first = best->requests.front();
      if (ready_of(c, first, now).ready > now) {
        enter(best_key, now);
        continue;
      }
      pay(c, first, now);
      receipts_[first.id] = payers_;
      return {take_first(best_key, now).id};
    }
  }

  // With the class it has now; what another paid is not given back to it.
  void settle(const ModelRequest& request, std::int64_t moved, std::int64_t now) override {
    const auto receipt = receipts_.find(request.id);
    if (receipt == receipts_.end() || flaw_ == Flaw::kNothingIsSettled) return;
    const bool is_same = receipt->second == payers_ || flaw_ == Flaw::kRefundsWhatAnotherPaid;
    receipts_.erase(receipt);
    Class& c = known_class(request, now);
    const bool is_abandoned = moved == kNotStarted;
    if (is_abandoned && flaw_ == Flaw::kAbandonedStaysCharged) return;
    // Of operations it took one, and of bytes as many as it was charged for.
    const Wide ops = is_abandoned ? 1 : 0;
    const Wide bytes = request.bytes - (is_abandoned ? 0 : moved);
    if (c.ops.rate != 0 && is_same) c.ops.balance += ops * kBillion;
    if (c.bytes.rate != 0 && (is_same || bytes < 0)) c.bytes.balance += bytes * kBillion;
    fill(c, now);
    look_again(key_of(request), now);
  }
  void charge(const ModelRequest& request, std::int64_t now) override {
    if (flaw_ == Flaw::kExemptIsFree) return;
    Class& c = known_class(request, now);
    if (c.ops.rate != 0) c.ops.balance -= kBillion;
    if (c.bytes.rate != 0) c.bytes.balance -= Wide{request.bytes} * kBillion;
    look_again(key_of(request), now);
  }

  void remove(const ModelRequest& request, std::int64_t now) override {
    const int key = key_of(request);
    auto& requests = queues_[at(key)].requests;
    if (requests.front().id == request.id) {
      take_first(key, now);
    } else {
      std::erase_if(requests, [&](const ModelRequest& other) { return other.id == request.id; });
    }
  }

 private:
  struct Bucket {
    std::int64_t rate = 0;  // 0: no bucket
    std::int64_t depth = 0;
    Wide balance = 0;  // in billionths
    Wide full() const { return Wide{depth} * kBillion; }
  };
  struct Class {
    bool known = false;
    bool realtime = false;
    Bucket ops;
    Bucket bytes;
    std::int64_t filled_at = 0;
    std::int64_t tag = 0;
  };
  struct Queue {
    std::deque<ModelRequest> requests;
    int rule = kDefault;
    // While it has requests: when the bucket it waits at can pay for the first, whether it was
    // found to be able to pay, and its place among those that were.
    bool is_at_bytes = false;
    std::int64_t ready = 0;
    bool is_let_go = false;
    std::int64_t tag = 0;
    std::int64_t order = 0;
  };

  static std::size_t at(int number) { return static_cast<std::size_t>(number); }
  static std::int64_t ceil_div(Wide a, Wide b) {
    return static_cast<std::int64_t>((a + b - 1) / b);
  }
  int key_of(const ModelRequest& request) const {
    return by_ == By::kJob ? request.job : request.client;
  }

  int make(const ModelRule& rule) {
    rules_.push_back(rule);
    classes_.emplace_back(queues_.size());
    return static_cast<int>(rules_.size()) - 1;
  }
  void insert(int number, int before) {
    const auto place = std::find(order_.begin(), order_.end(), before);
    order_.insert(place == order_.end() ? order_.begin() : place, number);
  }
  int match(int key) const {
    for (const int number : order_) {
      const int wanted = rules_[at(number)].key;
      if (number != kDefault && (wanted == key || wanted == ModelRule::kAll)) return number;
    }
    return kDefault;
  }

  static Bucket bucket(std::int64_t rate, std::int64_t depth) {
    return {rate, depth, Wide{depth} * kBillion};
  }
  Bucket ops_of(const ModelRule& rule) const {
    if (rule.rate == 0) return {};
    const std::int64_t saved = rule.realtime ? rule.rate : rule.rate / 100;
    const std::int64_t depth = rule.burst > 0 ? rule.burst : std::max<std::int64_t>(3, saved);
    return bucket(rule.rate, flaw_ == Flaw::kDepthOffByOne ? depth + 1 : depth);
  }
  static Bucket bytes_of(const ModelRule& rule) {
    if (rule.bps == 0) return {};
    return bucket(rule.bps, std::max<std::int64_t>(65536, rule.bps / 100));
  }

  Class& class_of(int key, std::int64_t now) {
    const int number = queues_[at(key)].rule;
    Class& c = classes_[at(number)][at(key)];
    if (!c.known) {
      const ModelRule& rule = rules_[at(number)];
      c = {true, rule.realtime, ops_of(rule), bytes_of(rule), now, 0};
    }
    return c;
  }
  // The balance stays, rounded down to what the new rate can express; a new bucket is full.
  void reshape(Class& c, const ModelRule& limits, std::int64_t now) {
    fill(c, now);
    const auto change = [&](Bucket& before, Bucket after) {
      if (before.rate != 0 && after.rate != 0 && flaw_ != Flaw::kRefillsOnChange) {
        const Wide unit = std::gcd(after.rate, kBillion);
        Wide units = before.balance / unit;
        if (units * unit > before.balance) --units;
        after.balance = std::min(units * unit, after.full());
      }
      before = after;
    };
    change(c.ops, ops_of(limits));
    change(c.bytes, bytes_of(limits));
  }
  static void fill(Class& c, std::int64_t now) {
    for (Bucket* bucket : {&c.ops, &c.bytes}) {
      const Wide came = Wide{bucket->rate} * (now - c.filled_at);
      bucket->balance = std::min(bucket->balance + came, bucket->full());
    }
    c.filled_at = now;
  }
  static std::int64_t ready_at(const Bucket& bucket, std::int64_t cost, std::int64_t now) {
    const Wide need = Wide{std::min(cost, bucket.depth)} * kBillion;
    if (bucket.rate == 0 || bucket.balance >= need) return now;
    return now + ceil_div(need - bucket.balance, bucket.rate);
  }
  // The bucket that can pay last, and when.
  struct Ready {
    bool is_at_bytes;
    std::int64_t ready;
  };
  static Ready ready_of(Class& c, const ModelRequest& request, std::int64_t now) {
    fill(c, now);
    const std::int64_t ops = ready_at(c.ops, 1, now);
    const std::int64_t bytes = ready_at(c.bytes, request.bytes, now);
    return {bytes > ops, std::max(ops, bytes)};
  }
  Class& known_class(const ModelRequest& request, std::int64_t now) {
    Queue& queue = queues_[at(key_of(request))];
    if (queue.requests.empty()) queue.rule = match(key_of(request));
    Class& c = class_of(key_of(request), now);
    fill(c, now);
    return c;
  }
  // Its time has come: it can pay, or waits at another bucket from now on.
  void wake(int key, std::int64_t now) {
    Queue& queue = queues_[at(key)];
    const Ready found = ready_of(class_of(key, now), queue.requests.front(), now);
    queue.is_let_go = found.ready <= now;
    queue.is_at_bytes = found.is_at_bytes;
    queue.ready = found.ready;
  }
  // The bucket at which it waits has another balance.
  void look_again(int key, std::int64_t now) {
    Queue& queue = queues_[at(key)];
    if (queue.requests.empty() || queue.is_let_go) return;
    Class& c = class_of(key, now);
    queue.ready = queue.is_at_bytes ? ready_at(c.bytes, queue.requests.front().bytes, now)
                                    : ready_at(c.ops, 1, now);
  }
  void pay(Class& c, const ModelRequest& request, std::int64_t now) {
    fill(c, now);
    virtual_ = std::max(virtual_, c.tag);
    std::int64_t step = 1;
    const auto take = [&](Bucket& bucket, std::int64_t cost) {
      if (bucket.rate == 0) return;
      bucket.balance -= Wide{cost} * kBillion;
      step = std::max(step, ceil_div(Wide{cost} * kBillion, bucket.rate));
    };
    take(c.ops, 1);
    take(c.bytes, request.bytes);
    c.tag += step;
  }

  ModelRequest take_first(int key, std::int64_t now) {
    auto& requests = queues_[at(key)].requests;
    const ModelRequest first = requests.front();
    requests.pop_front();
    if (requests.empty()) {
      std::erase(busy_, key);
    } else {
      enter(key, now);
    }
    return first;
  }
  void enter(int key, std::int64_t now) {
    Queue& queue = queues_[at(key)];
    Class& c = class_of(key, now);
    fill(c, now);
    const Bucket& main = c.ops.rate != 0 ? c.ops : c.bytes;
    c.tag = std::max(c.tag, virtual_ - ceil_div(main.full(), main.rate));
    queue.tag = c.realtime && flaw_ != Flaw::kRealtimeIsNotFirst ? 0 : c.tag;
    queue.order = queue.requests.front().arrival;
    wake(key, now);
  }
  // After a command; `changed` is the rule that has other limits now, if one has.
  void come_again(int changed, std::int64_t now) {
    for (const int key : busy_) {
      Queue& queue = queues_[at(key)];
      const int before = std::exchange(queue.rule, match(key));
      const bool concerned = queue.rule != before || queue.rule == changed;
      if (concerned) enter(key, now);
    }
  }

  By by_;
  Flaw flaw_;
  std::vector<Queue> queues_;  // by job or client
  std::vector<int> busy_;      // those with requests, in the order they came to have some
  std::vector<ModelRule> rules_;
  std::vector<int> order_;                   // in which rules match
  std::vector<std::vector<Class>> classes_;  // by rule, then by job or client
  std::map<int, int> receipts_;              // by id: payers_ when it paid
  int payers_ = 0;                           // grows when other buckets may pay than before
  std::int64_t virtual_ = std::int64_t{1} << 62;
  std::int64_t arrivals_ = 0;
};

// Both heads; the high one is a fifo for ever.
class ModelGate {
 public:
  using Offer = ModelPolicy::Offer;

  ModelGate(int slots, Flaw flaw) : slots_(slots), flaw_(flaw) {
    seats_.push_back(std::make_unique<Seat>(Seat{std::make_unique<ModelFifo>()}));
    force_ = seats_.front().get();
  }

  // Of the regular head. Null: back to its fifo.
  void start_policy(std::unique_ptr<ModelPolicy> policy) {
    force_ = seats_.front().get();
    forget_drained();
    if (policy == nullptr) return;
    force_ = seats_.emplace_back(std::make_unique<Seat>(Seat{std::move(policy)})).get();
  }
  void admit(const ModelRequest& request, Head head, std::int64_t now) {
    if (request.id >= static_cast<int>(known_.size())) known_.resize(at(request.id) + 1);
    known_[at(request.id)] = {request, head == Head::kHigh ? &high_ : force_};
    Seat& seat = *known_[at(request.id)].seat;
    seat.policy->admit(request, now);
    ++seat.queued;
  }
  void withdraw(int id, std::int64_t now) {
    Seat& seat = *known_[at(id)].seat;
    seat.policy->remove(known_[at(id)].request, now);
    --seat.queued;
    if (is_drained(seat)) forget_drained();
  }
  void promote(int id, std::int64_t now) {
    if (known_[at(id)].seat == &high_ || flaw_ == Flaw::kPromotedStaysInLine) return;
    withdraw(id, now);
    admit(known_[at(id)].request, Head::kHigh, now);
  }
  // It moved so many bytes, or never began.
  void complete(int id, std::int64_t moved, std::int64_t now) {
    Seat& seat = *known_[at(id)].seat;
    seat.policy->settle(known_[at(id)].request, moved, now);
    --seat.running;
    --running_;
    if (is_drained(seat)) forget_drained();
  }
  void defer() {
    if (flaw_ != Flaw::kDeferredKeepsItsSlot) --running_;
  }
  void resume(int id) {
    const bool is_high = known_[at(id)].seat == &high_ && flaw_ != Flaw::kResumedHeadsAreAlike;
    resumed_[is_high ? 0 : 1].push_back(id);
  }
  void abandon(int id, std::int64_t now) {
    for (auto& waiting : resumed_) std::erase(waiting, id);
    if (flaw_ != Flaw::kDeferredKeepsItsSlot) ++running_;
    complete(id, ModelPolicy::kNotStarted, now);
  }
  void charge(const ModelRequest& request, std::int64_t now) {
    force_->policy->charge(request, now);
  }
  void shutdown() { urge_ = Urge::kForce; }

  Offer next(std::int64_t now) {
    if (running_ >= slots_) return {};
    if (flaw_ != Flaw::kResumedWaitsForItsTurn || nothing_waits()) {
      for (auto& waiting : resumed_) {
        if (waiting.empty()) continue;
        const int id = waiting.front();
        waiting.pop_front();
        if (flaw_ != Flaw::kDeferredKeepsItsSlot) ++running_;
        return {id};
      }
    }
    const bool regular_first = high_in_row_ >= 10;
    Offer offer = regular_first ? from_regular(now) : from_high(now);
    if (offer.id >= 0) return offer;
    const std::int64_t until = offer.until;
    offer = regular_first ? from_high(now) : from_regular(now);
    offer.until = std::min(offer.until, until);
    return offer;
  }

 private:
  struct Seat {
    std::unique_ptr<ModelPolicy> policy;
    int queued = 0;
    int running = 0;
  };
  struct Known {
    ModelRequest request;
    Seat* seat = nullptr;
  };
  static std::size_t at(int number) { return static_cast<std::size_t>(number); }

  Offer ask(Seat& seat, std::int64_t now, Urge urge) {
    if (seat.queued == 0) return {};
    const Offer offer = seat.policy->pick(now, urge);
    if (offer.id < 0) return offer;
    --seat.queued;
    ++seat.running;
    ++running_;
    high_in_row_ = &seat == &high_ ? high_in_row_ + 1 : 0;
    return offer;
  }
  bool nothing_waits() const {
    int queued = high_.queued;
    for (const auto& seat : seats_) queued += seat->queued;
    return queued == 0;
  }
  Offer from_high(std::int64_t now) { return ask(high_, now, urge_); }
  // Policies take turns; those not in force any more need not wait for their limits. Turns pass on
  // only while more than the one in force has requests.
  Offer from_regular(std::int64_t now) {
    const bool alone = std::all_of(seats_.begin(), seats_.end(), [&](const auto& seat) {
      return seat->queued == 0 || seat.get() == force_;
    });
    if (alone) return ask(*force_, now, urge_);
    std::int64_t until = kEnd;
    if (flaw_ == Flaw::kDrainsBeforeTheOneInForce) turn_ = 0;
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      const std::size_t turn = (turn_ + i) % seats_.size();
      Seat& seat = *seats_[turn];
      const Offer offer = ask(seat, now, &seat == force_ ? urge_ : Urge::kForce);
      if (offer.id >= 0) {
        turn_ = (turn + 1) % seats_.size();
        return offer;
      }
      until = std::min(until, offer.until);
    }
    return {-1, until};
  }
  bool is_drained(const Seat& seat) const {
    return seat.queued == 0 && seat.running == 0 && &seat != force_ &&
           &seat != seats_.front().get() && &seat != &high_;
  }
  void forget_drained() {
    std::erase_if(seats_, [&](const auto& seat) { return is_drained(*seat); });
    turn_ = 0;
  }

  int slots_;
  Flaw flaw_;
  Seat high_{std::make_unique<ModelFifo>()};
  std::vector<std::unique_ptr<Seat>> seats_;  // of the regular head: fifo, drained ones, in force
  Seat* force_;
  std::size_t turn_ = 0;
  int running_ = 0;
  int high_in_row_ = 0;
  Urge urge_ = Urge::kInTime;
  std::vector<Known> known_;                  // by id
  std::array<std::deque<int>, 2> resumed_{};  // high head, regular head
};

Nid nid_of(int client) {
  return {0, 0x0a00'0000 + static_cast<std::uint64_t>(client), 0, NetType::kTcp,
          AddressFamily::kIpv4};
}

// Drives both, and compares.
class Duel {
 public:
  static constexpr int kSlots = 64;

  // With as many jobs, and as many clients.
  Duel(std::uint64_t seed, int keys, Flaw flaw = Flaw::kNone)
      : keys_(keys), flaw_(flaw), rng_(seed), model_(kSlots, flaw), gate_({.slots = kSlots}) {
    for (int job = 0; job < keys; ++job) jobs_.emplace_back("job" + std::to_string(job));
    switch_policy();
  }
  ~Duel() {
    const Instant now = instant_at(now_);
    gate_.shutdown(now);
    // After a difference the two do not agree on what runs.
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

  // Empty when all decisions were alike, else the first that was not. Between the requests come as
  // many events: a change of rules, and each sixth time a change of the policy.
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
      // About as much comes of each job as the default rule lets run.
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

  // A request that is outside, and as the model has it.
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
  // As many as the device is fast: at times too slow for what comes, at times faster.
  void complete() {
    for (credit_ += capacity_; credit_ >= 1000; credit_ -= 1000) {
      if (!running_.empty()) complete_one();
    }
  }

  std::string decide() {
    for (;;) {
      // Time that steps back, once the Gate has seen it, stands still.
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
    // The first is not counted: it is what the run begins with.
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
    if (what == 2 || limits.bps == 0) {
      // Another one: what stays as it is need not make anybody come again.
      while (limits.rate == tbf_->rule(rule).rate) limits.rate = any_rate();
      text += " rate=" + std::to_string(limits.rate);
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
  std::int64_t now_ = 5 * kBillion;
  std::int64_t seen_ = 0;         // the last time the Gate was asked at
  std::int64_t capacity_ = 1000;  // completions for each 1000 requests
  std::int64_t credit_ = 0;
  int events_ = 0;
  Counts counts_;
  std::vector<JobId> jobs_;
  std::vector<std::unique_ptr<Request>> requests_;  // by id
  std::vector<std::size_t> places_;                 // in queued_, by id
  std::vector<int> free_, queued_, running_;        // ids
  std::vector<int> deferred_;                       // and resumed ones
  ModelTbf* tbf_ = nullptr;                         // in force, if it is a tbf
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
  EXPECT_GE(counts.switches, 4);  // and the policy it began with
  // Nothing is proved by a run in which nothing happens.
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
        Flaw::kExemptIsFree}) {
    // Not every run meets every flaw.
    std::uint64_t seed = 2;
    while (seed <= 30 && Duel(seed, 10, flaw).run(20'000, 60).empty()) ++seed;
    ASSERT_LE(seed, 30U) << static_cast<int>(flaw);
    EXPECT_EQ(Duel(seed, 10).run(20'000, 60), "") << "without the flaw, seed " << seed;
  }
}

// ---- crrn alone: other quanta, changed while requests wait, and requests that go away ----

// One step: what, and of which client or waiting request or to which quantum.
using CrrnStep = std::pair<int, int>;

// Whether Crrn and the model take the same request at every step, and then until none is left.
bool crrn_decides_alike(const std::vector<CrrnStep>& steps, Flaw flaw) {
  constexpr int kClients = 4;
  const Instant now = instant_at(1000);
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<ModelRequest> waiting;
  Crrn crrn;
  ModelCrrn model(kClients, Crrn::kQuantumDefault, flaw);
  bool alike = true;
  const auto decide = [&] {
    const int expected = model.pick(0, Urge::kInTime).id;
    Request* const picked = crrn.pick(now, Urge::kInTime).request;
    alike = alike && picked == requests[static_cast<std::size_t>(expected)].get();
    std::erase_if(waiting, [&](const ModelRequest& one) {
      return requests[static_cast<std::size_t>(one.id)].get() == picked;
    });
  };
  for (const auto& [what, which] : steps) {
    if (what < 6) {
      waiting.push_back({static_cast<int>(requests.size()), 0, which % kClients, 0, 0});
      Request& request = *requests.emplace_back(std::make_unique<Request>());
      request.attributes.nid = nid_of(which % kClients);
      crrn.admit(request, now);
      model.admit(waiting.back(), 0);
    } else if (what == 6) {
      crrn.set_quantum(static_cast<std::uint16_t>(1 + which % 5));
      model.set_quantum(static_cast<std::uint64_t>(1 + which % 5));
    } else if (!waiting.empty() && what == 7) {
      const auto gone = waiting.begin() + which % static_cast<int>(waiting.size());
      crrn.remove(*requests[static_cast<std::size_t>(gone->id)], now);
      model.remove(*gone, 0);
      waiting.erase(gone);
    } else if (!waiting.empty()) {
      decide();
    }
    // After a difference the two no longer hold the same requests.
    if (!alike) break;
  }
  while (alike && !waiting.empty()) decide();
  while (crrn.pick(now, Urge::kInTime).request != nullptr) continue;
  return alike;
}

RC_GTEST_PROP(CrrnProperty, DecidesAsTheDescriptionDoes, ()) {
  const auto steps = *rc::gen::container<std::vector<CrrnStep>>(
      rc::gen::pair(rc::gen::inRange(0, 11), rc::gen::inRange(0, 1000)));
  RC_ASSERT(crrn_decides_alike(steps, Flaw::kNone));
}

TEST(CrrnModel, PredictsLongRunsAndCatchesEveryFlaw) {
  const auto steps_of = [](std::uint64_t seed) {
    Rng rng(seed);
    std::vector<CrrnStep> steps;
    for (int step = 0; step < 300; ++step) {
      steps.emplace_back(static_cast<int>(rng.below(11)), static_cast<int>(rng.below(1000)));
    }
    return steps;
  };
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    ASSERT_TRUE(crrn_decides_alike(steps_of(seed), Flaw::kNone)) << "seed " << seed;
  }
  for (const Flaw flaw :
       {Flaw::kReturnsToItsBatch, Flaw::kPauseKeepsTheRound, Flaw::kLateComersGoFirst}) {
    std::uint64_t seed = 1;
    while (seed <= 100 && crrn_decides_alike(steps_of(seed), flaw)) ++seed;
    EXPECT_LE(seed, 100U) << static_cast<int>(flaw);
  }
}

// ---- layers and common buckets, which the model does not know: limits hold, all are served ----

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
}  // namespace weir
