// SPDX-License-Identifier: Apache-2.0
//
// A simple and slow model of the Gate with fifo, crrn and tbf that predicts every decision of the
// real one: which request runs, or the nanosecond at which one will. Balances are whole numbers of
// billionths of a token, so that it is exact without fractions; every decision of tbf visits every
// class. tbf_property_test.cc and crrn_property_test.cc compare both.
#pragma once

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

#include "weir/schedule/gate.h"

namespace weir::model {

using Wide = __int128;
constexpr std::int64_t kBillion = 1'000'000'000;
constexpr std::int64_t kEnd = INT64_MAX;

// Deliberate errors of the model: the tests must detect each of them.
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
  kReserveIsNotFirst,
  kReserveMovesVirtualTime,
  kReserveKeepsAllTokens,
  kReserveIsNotRefunded,
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
  // The request moved this many bytes; kNotStarted: it never started.
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
// the other, and a round is a list of batches in the order in which they were started. A client has
// at most one batch in a round. A request joins the last batch of its client if that has room and
// is not of a past round, and other requests of the client wait. Otherwise it starts a batch, one
// round after the client's last one or in the round that is being served, whichever is later.
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
    std::abort();  // pick() was called while no request waits
  }
  void left(int number) { --clients_[static_cast<std::size_t>(number)].waiting; }
  // The first request has left: the round being served is now that of the next one.
  void move_on() {
    if (empty()) {
      if (flaw_ != Flaw::kPauseKeepsTheRound) ++served_;
    } else {
      served_ = std::max(served_, first().round);
    }
    rounds_.erase(rounds_.begin(), rounds_.lower_bound(served_));
  }

  std::vector<Client> clients_;
  std::map<std::int64_t, std::deque<Batch>> rounds_;  // from the one being served
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
  std::int64_t reserve = 0;  // operations per second; 0: none
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

  // Starts a rule directly before another one, or first. Returns its number.
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
    if ((before.reserve == 0) != (limits.reserve == 0)) ++payers_;
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
      const int reserved = first_reserved(now);
      if (reserved >= 0) best_key = reserved;
      best = &queues_[at(best_key)];
      // Its class may have been charged since the queue was released.
      Class& c = class_of(best_key, now);
      const ModelRequest& first = best->requests.front();
      if (ready_of(c, first, now).ready > now) {
        enter(best_key, now);
        continue;
      }
      pay(c, first, reserved >= 0, now);
      receipts_[first.id] = {payers_, reserved >= 0};
      return {take_first(best_key, now).id};
    }
  }

  // Settles with the current class of the request; a class gets no refund for what another one
  // paid.
  void settle(const ModelRequest& request, std::int64_t moved, std::int64_t now) override {
    const auto receipt = receipts_.find(request.id);
    if (receipt == receipts_.end() || flaw_ == Flaw::kNothingIsSettled) return;
    const bool is_same =
        receipt->second.payers == payers_ || flaw_ == Flaw::kRefundsWhatAnotherPaid;
    const bool is_reserved = receipt->second.is_reserved && flaw_ != Flaw::kReserveIsNotRefunded;
    receipts_.erase(receipt);
    Class& c = known_class(request, now);
    const bool is_abandoned = moved == kNotStarted;
    if (is_abandoned && flaw_ == Flaw::kAbandonedStaysCharged) return;
    // The request was charged one operation and request.bytes bytes.
    const Wide ops = is_abandoned ? 1 : 0;
    const Wide bytes = request.bytes - (is_abandoned ? 0 : moved);
    if (c.ops.rate != 0 && is_same) c.ops.balance += ops * kBillion;
    if (c.reserve.rate != 0 && is_same && is_reserved) c.reserve.balance += ops * kBillion;
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
    // Holds any number of tokens until one is taken, or until a queue comes back after a pause.
    Bucket reserve;
    std::int64_t unused_since = 0;
    std::int64_t filled_at = 0;
    std::int64_t tag = 0;
  };
  struct Queue {
    std::deque<ModelRequest> requests;
    int rule = kDefault;
    // While the queue has requests: when the bucket it waits for can pay for the first, whether the
    // queue was released because all buckets can pay, and its position among released queues.
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

  // The tokens of 10 ms after a pause, and of 1 s while requests wait; at least one.
  static std::int64_t rested_of(std::int64_t rate) { return std::max<std::int64_t>(1, rate / 100); }
  static Bucket reserve_of(const ModelRule& rule) {
    if (rule.reserve == 0) return {};
    return {rule.reserve, std::max(rested_of(rule.reserve), rule.reserve),
            Wide{rested_of(rule.reserve)} * kBillion};
  }

  Class& class_of(int key, std::int64_t now) {
    const int number = queues_[at(key)].rule;
    Class& c = classes_[at(number)][at(key)];
    if (!c.known) {
      const ModelRule& rule = rules_[at(number)];
      c = {true, rule.realtime, ops_of(rule), bytes_of(rule), reserve_of(rule), now, now, 0};
    }
    return c;
  }
  // The balance is kept, rounded down to what the new rate can express; a new bucket is full.
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
    c.reserve.balance = std::min(c.reserve.balance, c.reserve.full());
    change(c.reserve, reserve_of(limits));
  }
  static void fill(Class& c, std::int64_t now) {
    for (Bucket* bucket : {&c.ops, &c.bytes}) {
      const Wide came = Wide{bucket->rate} * (now - c.filled_at);
      bucket->balance = std::min(bucket->balance + came, bucket->full());
    }
    c.reserve.balance += Wide{c.reserve.rate} * (now - c.filled_at);
    c.filled_at = now;
  }
  static std::int64_t ready_at(const Bucket& bucket, std::int64_t cost, std::int64_t now) {
    const Wide need = Wide{std::min(cost, bucket.depth)} * kBillion;
    if (bucket.rate == 0 || bucket.balance >= need) return now;
    return now + ceil_div(need - bucket.balance, bucket.rate);
  }
  // The bucket that is the last to be able to pay, and when it can.
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
  // The bucket of this queue can pay now: the queue is released, or waits for another bucket.
  void wake(int key, std::int64_t now) {
    Queue& queue = queues_[at(key)];
    const Ready found = ready_of(class_of(key, now), queue.requests.front(), now);
    const bool was_let_go = std::exchange(queue.is_let_go, found.ready <= now);
    Class& c = class_of(key, now);
    const bool comes_back = !was_let_go && queue.is_let_go && c.unused_since < now;
    if (comes_back && flaw_ != Flaw::kReserveKeepsAllTokens) {
      c.reserve.balance = std::min(c.reserve.balance, Wide{rested_of(c.reserve.rate)} * kBillion);
    }
    queue.is_at_bytes = found.is_at_bytes;
    queue.ready = found.ready;
  }
  // The balance of the bucket that the queue waits for has changed.
  void look_again(int key, std::int64_t now) {
    Queue& queue = queues_[at(key)];
    if (queue.requests.empty() || queue.is_let_go) return;
    Class& c = class_of(key, now);
    queue.ready = queue.is_at_bytes ? ready_at(c.bytes, queue.requests.front().bytes, now)
                                    : ready_at(c.ops, 1, now);
  }
  void pay(Class& c, const ModelRequest& request, bool is_reserved, std::int64_t now) {
    fill(c, now);
    const std::int64_t most = std::max(c.tag, virtual_ + kBillion);
    if (!is_reserved || flaw_ == Flaw::kReserveMovesVirtualTime) {
      virtual_ = std::max(virtual_, c.tag);
    }
    std::int64_t step = 1;
    const auto take = [&](Bucket& bucket, std::int64_t cost) {
      if (bucket.rate == 0) return;
      bucket.balance -= Wide{cost} * kBillion;
      step = std::max(step, ceil_div(Wide{cost} * kBillion, bucket.rate));
    };
    take(c.ops, 1);
    take(c.bytes, request.bytes);
    c.tag += step;
    if (!is_reserved) return;
    c.tag = std::min(c.tag, most);
    c.reserve.balance = std::min(c.reserve.balance, c.reserve.full()) - kBillion;
  }

  // Of the queues that their limits allow, the one whose reservation could pay first; -1: none.
  int first_reserved(std::int64_t now) {
    int first = -1;
    std::int64_t first_ready = now + 1;
    for (const int key : busy_) {
      const Queue& queue = queues_[at(key)];
      Class& c = class_of(key, now);
      if (!queue.is_let_go || c.reserve.rate == 0 || flaw_ == Flaw::kReserveIsNotFirst) continue;
      fill(c, now);
      const Wide ahead = c.reserve.balance - kBillion;
      if (ahead < 0) continue;
      const std::int64_t ready = now - static_cast<std::int64_t>(ahead / c.reserve.rate);
      const bool is_before =
          ready < first_ready || (ready == first_ready && queue.order < queues_[at(first)].order);
      if (!is_before) continue;
      first = key;
      first_ready = ready;
    }
    return first;
  }

  ModelRequest take_first(int key, std::int64_t now) {
    auto& requests = queues_[at(key)].requests;
    const ModelRequest first = requests.front();
    leave(key, now);
    requests.pop_front();
    if (requests.empty()) {
      std::erase(busy_, key);
    } else {
      enter(key, now);
    }
    return first;
  }
  void leave(int key, std::int64_t now) {
    if (std::exchange(queues_[at(key)].is_let_go, false)) class_of(key, now).unused_since = now;
  }
  void enter(int key, std::int64_t now) {
    leave(key, now);
    Queue& queue = queues_[at(key)];
    Class& c = class_of(key, now);
    fill(c, now);
    const Bucket& main = c.ops.rate != 0 ? c.ops : c.bytes;
    c.tag = std::max(c.tag, virtual_ - ceil_div(main.full(), main.rate));
    queue.tag = c.realtime && flaw_ != Flaw::kRealtimeIsNotFirst ? 0 : c.tag;
    queue.order = queue.requests.front().arrival;
    wake(key, now);
  }
  // Enters queues again after a command; `changed` is the rule whose limits changed, -1 if none
  // did.
  void come_again(int changed, std::int64_t now) {
    for (const int key : busy_) {
      Queue& queue = queues_[at(key)];
      const int rule = match(key);
      const bool concerned = queue.rule != rule || rule == changed;
      if (!concerned) continue;
      leave(key, now);
      queue.rule = rule;
      enter(key, now);
    }
  }

  By by_;
  Flaw flaw_;
  std::vector<Queue> queues_;  // by job or client
  std::vector<int> busy_;      // queues with requests, in the order they got their first one
  std::vector<ModelRule> rules_;
  std::vector<int> order_;                   // in which rules match
  std::vector<std::vector<Class>> classes_;  // by rule, then by job or client
  struct Receipt {
    int payers;  // payers_ when it paid
    bool is_reserved;
  };
  std::map<int, Receipt> receipts_;  // by id
  int payers_ = 0;                   // increases when other buckets may pay than before
  std::int64_t virtual_ = std::int64_t{1} << 62;
  std::int64_t arrivals_ = 0;
};

// Both heads; the high one always runs fifo.
class ModelGate {
 public:
  using Offer = ModelPolicy::Offer;

  ModelGate(int slots, Flaw flaw) : slots_(slots), flaw_(flaw) {
    seats_.push_back(std::make_unique<Seat>(Seat{std::make_unique<ModelFifo>()}));
    force_ = seats_.front().get();
  }

  // Starts a policy on the regular head. Null: back to its fifo.
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
  // The request moved this many bytes, or never started (kNotStarted).
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
  // Policies take turns; requests of replaced policies do not wait for limits. The turn passes on
  // only while a policy other than the current one has requests.
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
  std::vector<std::unique_ptr<Seat>> seats_;  // of the regular head: fifo, drained, current
  Seat* force_;
  std::size_t turn_ = 0;
  int running_ = 0;
  int high_in_row_ = 0;
  Urge urge_ = Urge::kInTime;
  std::vector<Known> known_;                  // by id
  std::array<std::deque<int>, 2> resumed_{};  // high head, regular head
};

inline Nid nid_of(int client) {
  return {0, 0x0a00'0000 + static_cast<std::uint64_t>(client), 0, NetType::kTcp,
          AddressFamily::kIpv4};
}

}  // namespace weir::model
