// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/gate.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/rule_list.h"
#include "weir/classify/rule_spec.h"
#include "weir/schedule/policy_kinds.h"

namespace weir {
namespace {

std::size_t index_of(Head head) { return static_cast<std::size_t>(head); }

Heads only(Head head) { return head == Head::kRegular ? Heads::kRegular : Heads::kHigh; }

}  // namespace

// A policy and its counters in the Gate, so that no decision has to call a policy without requests.
struct Gate::ActivePolicy {
  ActivePolicy(std::unique_ptr<Policy> p, std::string_view a)
      : policy(std::move(p)), pays_root(policy->pays_root()), argument(a) {}

  std::unique_ptr<Policy> policy;
  bool pays_root;
  std::string argument;  // argument of the start
  std::size_t queued = 0;
  std::size_t running = 0;   // requests it chose that have not completed
  std::size_t deferred = 0;  // and those of them that hold no slot
};

// The policies behind one head: the fallback first, then those being drained, oldest first, and
// last the current one, unless it is the fallback.
class Gate::HeadPolicies {
 public:
  HeadPolicies(std::unique_ptr<Policy> fallback, Root& root)
      : root_(root), force_(&install(std::move(fallback), "")) {}

  ActivePolicy& in_force() const { return *force_; }
  bool runs(std::string_view name, std::string_view argument) const {
    return force_->policy->name() == name && force_->argument == argument;
  }
  std::size_t queued() const { return queued_; }

  void start(std::unique_ptr<Policy> policy, std::string_view argument) {
    stop();
    force_ = &install(std::move(policy), argument);
  }
  // Returns to the fallback.
  void stop() {
    force_ = &fallback();
    forget_drained();
  }

  void admit(Request& request, Instant now) {
    ++queued_;
    ++force_->queued;
    force_->policy->admit(request, now);
  }
  void remove(Request& request, ActivePolicy& active, Instant now) {
    active.policy->remove(request, now);
    left(active);
    if (is_drained(active)) forget_drained();
  }
  Pick pick(Instant now, Urge urge) {
    if (queued_ == force_->queued) return pick_from(*force_, now, urge, ending_of(urge));
    return pick_in_turn(now, urge);
  }
  void completed(ActivePolicy& active) {
    --active.running;
    if (is_drained(active)) forget_drained();
  }
  void withdrawn_deferred(ActivePolicy& active) {
    --active.deferred;
    completed(active);
  }

  void add_status(PolicyStatus& status) const {
    for (const auto& active : policies_) {
      if (active->policy->name() != status.name) continue;
      status.queued += active->queued;
      status.running += active->running - active->deferred;
      if (active.get() == force_ || status.is_fallback) {
        status.state = PolicyStatus::State::kStarted;
        status.argument = active->argument;
      } else if (status.state == PolicyStatus::State::kStopped) {
        status.state = PolicyStatus::State::kStopping;
      }
    }
  }

 private:
  enum class Ending : std::uint8_t { kNo, kYes };
  static Ending ending_of(Urge urge) { return urge == Urge::kFinish ? Ending::kYes : Ending::kNo; }

  ActivePolicy& fallback() const { return *policies_.front(); }

  ActivePolicy& install(std::unique_ptr<Policy> policy, std::string_view argument) {
    return *policies_.emplace_back(std::make_unique<ActivePolicy>(std::move(policy), argument));
  }

  void left(ActivePolicy& active) {
    --queued_;
    --active.queued;
  }

  // A policy that is drained pays nothing on its own. At the end of the server nothing is paid.
  Pick pick_from(ActivePolicy& active, Instant now, Urge urge, Ending ending) {
    if (root_.exists() && ending == Ending::kNo && (!active.pays_root || urge == Urge::kForce)) {
      return pick_paced(active, now, urge);
    }
    return take_from(active, now, urge);
  }
  // The cost of a request is known only after it was picked: it may leave a debt.
  [[gnu::noinline]] Pick pick_paced(ActivePolicy& active, Instant now, Urge urge) {
    if (const Instant at = root_.ready_at(Tokens{1}); at > now) return {nullptr, at};
    const Pick pick = take_from(active, now, urge);
    if (pick.request == nullptr) return pick;
    root_.pay(root_.cost_of(pick.request->bytes), now);
    pick.request->paid_root_ = true;
    return pick;
  }
  Pick take_from(ActivePolicy& active, Instant now, Urge urge) {
    const Pick pick = active.policy->pick(now, urge);
    if (pick.request == nullptr) return pick;
    left(active);
    ++active.running;
    return pick;
  }

  // Policies that have requests take turns; one that is no longer current is drained.
  [[gnu::noinline]] Pick pick_in_turn(Instant now, Urge urge) {
    Pick best;
    const std::size_t count = policies_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = (turn_ + i) % count;
      ActivePolicy& active = *policies_[at];
      if (active.queued == 0) continue;
      const Pick pick =
          pick_from(active, now, &active == force_ ? urge : Urge::kForce, ending_of(urge));
      if (pick.request != nullptr) {
        turn_ = (at + 1) % count;
        return pick;
      }
      best.until = std::min(best.until, pick.until);
    }
    return best;
  }

  // A stopped policy is removed when its last request has left it and completed.
  bool is_drained(const ActivePolicy& active) const {
    return active.queued == 0 && active.running == 0 && &active != force_ && &active != &fallback();
  }
  void forget_drained() {
    std::erase_if(policies_, [&](const auto& active) { return is_drained(*active); });
    turn_ = 0;
  }

  Root& root_;
  std::vector<std::unique_ptr<ActivePolicy>> policies_;
  ActivePolicy* force_;
  std::size_t queued_ = 0;
  std::size_t turn_ = 0;
};

Gate::ActivePolicy& Gate::active_of(const Request& request) {
  return *static_cast<ActivePolicy*>(request.active_);
}

Gate::Gate(const Options& options)
    : options_(options), regular_slots_(options.slots - options.hp_slots) {
  WEIR_ASSERT(options.hp_slots < options.slots, options.hp_slots, options.slots);
  auto fallbacks = fallback_policy().make({}, {options_.rules, policies_made_, root_});
  WEIR_ASSERT(fallbacks.has_value());
  for (const Head head : kHeads) {
    head_policies_[index_of(head)] =
        std::make_unique<HeadPolicies>(std::move((*fallbacks)[index_of(head)]), root_);
  }
}

Gate::~Gate() {
  WEIR_ASSERT(queued() == 0 && running() == 0 && deferred_ == 0, queued(), running(), deferred_);
}

Instant Gate::forward(Instant now) {
  now_ = std::max(now_, now);
  return now_;
}

void Gate::admit(Request& request, Head head, Instant now) {
  WEIR_ASSERT(request.place_ == Request::Place::kOutside && !shut_down_);
  request.head_ = head;
  request.place_ = Request::Place::kQueued;
  request.paid_root_ = false;
  request.admitted_at_ = forward(now);
  request.active_ = &policies_of(head).in_force();
  if (root_.exists() && queued() == 0) root_.rest();
  policies_of(head).admit(request, now_);
}

bool Gate::has_slot(Head head) const {
  if (running() >= options_.slots) return false;
  return head == Head::kHigh || running_[index_of(Head::kRegular)] < regular_slots_;
}

Pick Gate::pick_from(Head head, Instant now, Urge urge) {
  if (!has_slot(head)) return {};
  const Pick pick = policies_of(head).pick(now, shut_down_ ? Urge::kFinish : urge);
  if (pick.request == nullptr) return pick;
  high_in_row_ = head == Head::kHigh ? high_in_row_ + 1 : 0;
  ++running_[index_of(head)];
  pick.request->place_ = Request::Place::kRunning;
  pick.request->started_at_ = now_;
  return pick;
}

// High head first, each head in the order of resumption.
[[gnu::noinline]] Request* Gate::pick_resumed() {
  for (const Head head : {Head::kHigh, Head::kRegular}) {
    auto& waiting = waiting_again_[index_of(head)];
    if (waiting.empty() || !has_slot(head)) continue;
    Request& first = waiting.front();
    waiting.erase(first);
    --resumed_;
    --deferred_;
    --active_of(first).deferred;
    ++running_[index_of(head)];
    first.place_ = Request::Place::kRunning;
    first.started_at_ = now_;
    return &first;
  }
  return nullptr;
}

Decision Gate::next(Instant now) {
  forward(now);
  if (resumed_ > 0) [[unlikely]] {
    if (Request* const again = pick_resumed()) return Decision::run_again(*again);
  }
  const bool regular_first = high_in_row_ >= kHighInRowMax;
  const Head first = regular_first ? Head::kRegular : Head::kHigh;
  const Head second = regular_first ? Head::kHigh : Head::kRegular;
  // Usually one of them is empty.
  const auto ask = [&](Head head, Urge urge) {
    return policies_of(head).queued() == 0 ? Pick{} : pick_from(head, now_, urge);
  };
  Pick one = ask(first, Urge::kInTime);
  if (one.request != nullptr) return Decision::run(*one.request);
  Pick other = ask(second, Urge::kInTime);
  if (other.request != nullptr) return Decision::run(*other.request);
  Instant until = std::min(one.until, other.until);
  if (options_.rules.sharing) {
    one = ask(first, Urge::kBorrow);
    if (one.request != nullptr) return Decision::run(*one.request);
    other = ask(second, Urge::kBorrow);
    if (other.request != nullptr) return Decision::run(*other.request);
    until = std::min({until, one.until, other.until});
  }
  return until == kNever ? Decision::idle() : Decision::wait_until(until);
}

void Gate::complete(Request& request, Instant now) {
  WEIR_ASSERT(request.place_ == Request::Place::kRunning);
  forward(now);
  --running_[index_of(request.head_)];
  request.place_ = Request::Place::kOutside;
  policies_of(request.head_).completed(active_of(request));
}

void Gate::complete(Request& request, Instant now, const Outcome& outcome) {
  if (outcome.how == Outcome::How::kNotStarted || outcome.differs_from(request.bytes)) [[unlikely]]
    settle(request, now, outcome);
  complete(request, now);
}

// Out of line: the usual completion then needs no stack frame.
[[gnu::noinline]] void Gate::settle(const Request& request, Instant now, const Outcome& outcome) {
  if (outcome.how == Outcome::How::kNotStarted) return refund(request, now);
  active_of(request).policy->settle(request, outcome, forward(now));
  if (!request.paid_root_ || !root_.exists()) return;
  const Bytes moved = outcome.bytes.value_or(request.bytes);
  root_.settle(root_.cost_of(request.bytes), root_.cost().of(moved, outcome.operations), now_);
}

void Gate::refund(const Request& request, Instant now) {
  active_of(request).policy->refund(request, forward(now));
  if (request.paid_root_ && root_.exists()) root_.give_back(root_.cost_of(request.bytes));
}

void Gate::withdraw(Request& request, Instant now) {
  ActivePolicy& active = active_of(request);
  switch (request.place_) {
    case Request::Place::kQueued:
      policies_of(request.head_).remove(request, active, forward(now));
      break;
    case Request::Place::kResumed:
      waiting_again_[index_of(request.head_)].erase(request);
      --resumed_;
      [[fallthrough]];
    case Request::Place::kDeferred:
      --deferred_;
      refund(request, now);
      policies_of(request.head_).withdrawn_deferred(active);
      break;
    default:
      WEIR_ASSERT(false, static_cast<int>(request.place_));
  }
  request.place_ = Request::Place::kOutside;
}

void Gate::defer(Request& request, Instant now) {
  WEIR_ASSERT(request.place_ == Request::Place::kRunning);
  forward(now);
  --running_[index_of(request.head_)];
  ++deferred_;
  ++active_of(request).deferred;
  request.place_ = Request::Place::kDeferred;
}

void Gate::resume(Request& request, Instant now) {
  WEIR_ASSERT(request.place_ == Request::Place::kDeferred);
  forward(now);
  waiting_again_[index_of(request.head_)].push_back(request);
  ++resumed_;
  request.place_ = Request::Place::kResumed;
}

void Gate::charge(Request& request, Head head, Instant now) {
  WEIR_ASSERT(request.place_ == Request::Place::kOutside);
  request.head_ = head;
  request.admitted_at_ = request.started_at_ = forward(now);
  ActivePolicy& active = policies_of(head).in_force();
  active.policy->charge(request, now_);
  if (root_.exists() && !active.pays_root) root_.pay(root_.cost_of(request.bytes), now_);
}

Nanoseconds Gate::expected_wait(const Request& request, Head head, Instant now) const {
  if (shut_down_) return Nanoseconds{0};
  const Instant from = std::max(now_, now);
  const ActivePolicy& active = policies_of(head).in_force();
  Instant ready = active.policy->ready_at(request, from);
  if (!active.pays_root) ready = std::max(ready, root_.ready_at(Tokens{1}));
  if (ready == kNever) return Nanoseconds::max();
  return std::max(ready - from, Nanoseconds{0});
}

void Gate::promote(Request& request, Instant now) {
  WEIR_ASSERT(request.place_ != Request::Place::kOutside);
  if (request.place_ != Request::Place::kQueued || request.head_ == Head::kHigh) return;
  policies_of(Head::kRegular).remove(request, active_of(request), forward(now));
  request.head_ = Head::kHigh;
  request.active_ = &policies_of(Head::kHigh).in_force();
  policies_of(Head::kHigh).admit(request, now_);
}

void Gate::shutdown(Instant now) {
  forward(now);
  hold_regular(false);
  shut_down_ = true;
}

void Gate::hold_regular(bool is_held) {
  regular_slots_ = is_held && !shut_down_ ? 0 : options_.slots - options_.hp_slots;
}

void Gate::set_slots(std::uint32_t slots) {
  WEIR_ASSERT(options_.hp_slots < slots, options_.hp_slots, slots);
  const bool is_held = regular_slots_ == 0;
  options_.slots = slots;
  hold_regular(is_held);
}

std::size_t Gate::queued() const {
  return policies_of(Head::kRegular).queued() + policies_of(Head::kHigh).queued();
}

const Policy& Gate::policy_in_force(Head head) const {
  return *policies_of(head).in_force().policy;
}

Result<void> Gate::start_policy(std::string_view name, std::string_view argument, Heads heads) {
  const auto kind = find_policy(name);
  if (!kind) return tl::unexpected(kind.error());
  auto made = (*kind)->make(argument, {options_.rules, ++policies_made_, root_});
  if (!made) return tl::unexpected(made.error());
  ++switches_;
  for (const Head head : kHeads) {
    if (!names(heads, head)) continue;
    if (*kind == &fallback_policy()) {
      policies_of(head).stop();
    } else if (!policies_of(head).runs(name, argument)) {
      policies_of(head).start(std::move((*made)[index_of(head)]), argument);
    }
  }
  return {};
}

RuleEngine* Gate::engine(Head head) { return policies_of(head).in_force().policy->engine(); }

const RuleEngine* Gate::engine(Head head) const { return policy_in_force(head).engine(); }

Result<void> Gate::set_tunable(Head head, std::string_view name, std::uint64_t value) {
  Policy& policy = *policies_of(head).in_force().policy;
  const auto kind = find_policy(policy.name());
  WEIR_ASSERT(kind.has_value());
  auto found = find_tunable(**kind, name);
  if (!found) {
    found.error().code = std::errc::no_such_device;
    return tl::unexpected(found.error());
  }
  const Tunable& tunable = **found;
  if (value < tunable.least || value > tunable.most) {
    return fail(std::errc::invalid_argument, quote(name), fmt::format("cannot be {}", value),
                fmt::format("give a number from {} to {}", tunable.least, tunable.most));
  }
  policy.set_tunable(name, value);
  return {};
}

Result<FieldSet> Gate::type_for(const RuleOutline& outline) const {
  FieldSet type;
  for (const Head head : kHeads) {
    if (!names(outline.heads, head)) continue;
    const RuleEngine* const engine = this->engine(head);
    if (engine == nullptr) {
      return fail(
          outline.starts ? std::errc::invalid_argument : std::errc::no_such_device,
          head == Head::kRegular ? "regular requests" : "high-priority requests",
          policies_with_rules() + " is not running for them",
          fmt::format("write {} to nrs_policies first, or write reg or hp before the command",
                      policies_with_rules()));
    }
    if (!type.empty() && type != engine->type()) {
      return fail(
          std::errc::invalid_argument, "rule",
          policies_with_rules() + " has other fields for regular than for high-priority requests",
          "write reg or hp before the command");
    }
    type = engine->type();
  }
  return type;
}

Result<RuleChange> Gate::read_rule(std::string_view text) const {
  const auto type = type_for(outline_of(text));
  if (!type) return tl::unexpected(type.error());
  return parse_command(text, *type, options_.nodemaps);
}

Result<RuleCommand> Gate::bind_rule(const RuleChange& change) const {
  const auto type = type_for({.heads = change.heads, .starts = change.verb == Verb::kStart});
  if (!type) return tl::unexpected(type.error());
  return bind(change, *type, options_.nodemaps);
}

Result<void> Gate::check_readable(const RuleChange& change) const {
  const auto command = bind_rule(change);
  if (!command) return tl::unexpected(command.error());
  return {};
}

Result<void> Gate::apply_rule(const RuleChange& change, Instant now) {
  auto command = bind_rule(change);
  if (!command) return tl::unexpected(command.error());
  forward(now);
  RuleEngine* const regular = engine(Head::kRegular);
  RuleEngine* const high = engine(Head::kHigh);
  const std::array<const RuleList*, 2> lists = {
      regular == nullptr ? nullptr : &regular->rules(Head::kRegular),
      high == nullptr ? nullptr : &high->rules(Head::kHigh)};
  for (const Head head : kHeads) {
    if (!names(command->heads, head)) continue;
    if (auto checked = lists[index_of(head)]->check(*command); !checked) return checked;
  }
  if (auto bounded = reserve_bound_.check(*command, lists); !bounded) return bounded;
  if (command->heads != Heads::kBoth) {
    return (command->heads == Heads::kRegular ? regular : high)->apply(*command, now_);
  }
  if (regular == high) return regular->apply(*command, now_);
  // Two engines; both accept it.
  for (const Head head : kHeads) {
    command->heads = only(head);
    const auto applied = engine(head)->apply(*command, now_);
    WEIR_ASSERT(applied.has_value());
  }
  return {};
}

Result<void> Gate::write_rule(std::string_view text, Instant now) {
  const auto change = read_rule(text);
  if (!change) return tl::unexpected(change.error());
  return apply_rule(*change, now);
}

Result<void> Gate::apply_rules(std::span<const RuleChange> changes, Instant now) {
  if (auto checked = check_rules(changes); !checked) return checked;
  for (const RuleChange& change : changes) {
    const auto applied = apply_rule(change, now);
    WEIR_ASSERT(applied.has_value());
  }
  return {};
}

Result<void> Gate::check_rules(std::span<const RuleChange> changes) const {
  RuleTrial trial(*this);
  for (const RuleChange& change : changes) {
    if (auto applied = trial.apply(change); !applied) {
      return tl::unexpected(name_rule(applied.error(), print(change)));
    }
  }
  return {};
}

Gate::RuleTrial::RuleTrial(const Gate& gate) : gate_(gate) {
  for (const Head head : kHeads) {
    if (const RuleEngine* const engine = gate.engine(head)) {
      lists_[index_of(head)] = engine->rules(head).copy();
    }
  }
}

Result<void> Gate::RuleTrial::apply(const RuleChange& change) {
  const auto read = gate_.bind_rule(change);
  if (!read) return tl::unexpected(read.error());
  for (const Head head : kHeads) {
    if (!names(read->heads, head)) continue;
    if (auto checked = lists_[index_of(head)]->check(*read); !checked) return checked;
  }
  const std::array<const RuleList*, 2> lists = {lists_[0].get(), lists_[1].get()};
  if (auto bounded = gate_.reserve_bound_.check(*read, lists); !bounded) return bounded;
  for (const Head head : kHeads) {
    if (!names(read->heads, head)) continue;
    const auto applied = lists_[index_of(head)]->apply(*read);
    WEIR_ASSERT(applied.has_value());
  }
  return {};
}

std::vector<Gate::PolicyStatus> Gate::policies(Head head) const {
  std::vector<PolicyStatus> all;
  for (const auto& kind : policy_kinds()) {
    PolicyStatus status{
        .name = kind->name, .argument = {}, .is_fallback = kind.get() == &fallback_policy()};
    policies_of(head).add_status(status);
    all.push_back(status);
  }
  return all;
}

}  // namespace weir
