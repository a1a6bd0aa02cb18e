// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/gate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/schedule/crrn.h"
#include "weir/schedule/fifo.h"

namespace weir {
namespace {

std::size_t index_of(Head head) { return static_cast<std::size_t>(head); }

// In the order they are listed.
constexpr std::array kPolicyNames = {Fifo::kName, Crrn::kName, TbfPolicy::kName};

Heads only(Head head) { return head == Head::kRegular ? Heads::kRegular : Heads::kHigh; }

// What can be told of a command before its type is known.
struct Outline {
  Heads heads = Heads::kBoth;
  bool starts = false;
};

Outline outline_of(std::string_view text) {
  Outline outline;
  if (text.starts_with("reg ")) {
    outline.heads = Heads::kRegular;
    text.remove_prefix(4);
  } else if (text.starts_with("hp ")) {
    outline.heads = Heads::kHigh;
    text.remove_prefix(3);
  }
  outline.starts = text.starts_with("start");
  return outline;
}

}  // namespace

// A policy with what the Gate knows of it. Counted here, so that no decision has to ask a policy
// that has nothing.
struct Gate::Seated {
  Seated(std::unique_ptr<Policy> p, std::string_view a) : policy(std::move(p)), argument(a) {}

  std::unique_ptr<Policy> policy;
  std::string argument;  // what it was started with
  std::size_t queued = 0;
  std::size_t running = 0;  // requests it chose that have not completed
};

// The policies behind one head: the fallback first, then those being drained, oldest first, and
// last the one in force where it is not the fallback itself.
class Gate::Entrance {
 public:
  Entrance() : force_(&seat(std::make_unique<Fifo>(), "")) {}

  Seated& in_force() const { return *force_; }
  bool runs(std::string_view name, std::string_view argument) const {
    return force_->policy->name() == name && force_->argument == argument;
  }
  std::size_t queued() const { return queued_; }

  void start(std::unique_ptr<Policy> policy, std::string_view argument) {
    stop();
    force_ = &seat(std::move(policy), argument);
  }
  // Back to the fallback.
  void stop() {
    force_ = &fallback();
    forget_drained();
  }

  void admit(Request& request, Instant now) {
    ++queued_;
    ++force_->queued;
    force_->policy->admit(request, now);
  }
  void remove(Request& request, Seated& seated, Instant now) {
    seated.policy->remove(request, now);
    left(seated);
    if (is_drained(seated)) forget_drained();
  }
  Pick pick(Instant now, Urge urge) {
    if (queued_ == force_->queued) return pick_from(*force_, now, urge);
    return pick_in_turn(now, urge);
  }
  void completed(Seated& seated) {
    --seated.running;
    if (is_drained(seated)) forget_drained();
  }

  void add_status(PolicyStatus& status) const {
    for (const auto& seated : policies_) {
      if (seated->policy->name() != status.name) continue;
      status.queued += seated->queued;
      status.running += seated->running;
      if (seated.get() == force_ || status.is_fallback) {
        status.state = PolicyStatus::State::kStarted;
        status.argument = seated->argument;
      } else if (status.state == PolicyStatus::State::kStopped) {
        status.state = PolicyStatus::State::kStopping;
      }
    }
  }

 private:
  Seated& fallback() const { return *policies_.front(); }

  Seated& seat(std::unique_ptr<Policy> policy, std::string_view argument) {
    return *policies_.emplace_back(std::make_unique<Seated>(std::move(policy), argument));
  }

  void left(Seated& seated) {
    --queued_;
    --seated.queued;
  }

  Pick pick_from(Seated& seated, Instant now, Urge urge) {
    const Pick pick = seated.policy->pick(now, urge);
    if (pick.request == nullptr) return pick;
    left(seated);
    ++seated.running;
    return pick;
  }

  // Policies that have requests take turns; one that is not in force any more is drained.
  [[gnu::noinline]] Pick pick_in_turn(Instant now, Urge urge) {
    Pick best;
    const std::size_t count = policies_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = (turn_ + i) % count;
      Seated& seated = *policies_[at];
      if (seated.queued == 0) continue;
      const Pick pick = pick_from(seated, now, &seated == force_ ? urge : Urge::kForce);
      if (pick.request != nullptr) {
        turn_ = (at + 1) % count;
        return pick;
      }
      best.until = std::min(best.until, pick.until);
    }
    return best;
  }

  // A policy that was stopped goes when its last request has left it and completed.
  bool is_drained(const Seated& seated) const {
    return seated.queued == 0 && seated.running == 0 && &seated != force_ && &seated != &fallback();
  }
  void forget_drained() {
    std::erase_if(policies_, [&](const auto& seated) { return is_drained(*seated); });
    turn_ = 0;
  }

  std::vector<std::unique_ptr<Seated>> policies_;
  Seated* force_;
  std::size_t queued_ = 0;
  std::size_t turn_ = 0;
};

Gate::Seated& Gate::seated_of(const Request& request) {
  return *static_cast<Seated*>(request.seated_);
}

Gate::Gate(const Options& options)
    : options_(options),
      entrances_{std::make_unique<Entrance>(), std::make_unique<Entrance>()},
      regular_slots_(options.slots - options.hp_slots) {
  WEIR_ASSERT(options.hp_slots < options.slots, options.hp_slots, options.slots);
}

Gate::~Gate() { WEIR_ASSERT(queued() == 0 && running() == 0, queued(), running()); }

Instant Gate::forward(Instant now) {
  now_ = std::max(now_, now);
  return now_;
}

void Gate::admit(Request& request, Head head, Instant now) {
  WEIR_ASSERT(request.place_ == Request::Place::kOutside && !shut_down_);
  request.head_ = head;
  request.place_ = Request::Place::kQueued;
  request.admitted_at_ = forward(now);
  request.seated_ = &entrance(head).in_force();
  entrance(head).admit(request, now_);
}

bool Gate::has_slot(Head head) const {
  if (running() >= options_.slots) return false;
  return head == Head::kHigh || running_[index_of(Head::kRegular)] < regular_slots_;
}

Pick Gate::pick_from(Head head, Instant now, Urge urge) {
  if (!has_slot(head)) return {};
  const Pick pick = entrance(head).pick(now, shut_down_ ? Urge::kFinish : urge);
  if (pick.request == nullptr) return pick;
  high_in_row_ = head == Head::kHigh ? high_in_row_ + 1 : 0;
  ++running_[index_of(head)];
  pick.request->place_ = Request::Place::kRunning;
  return pick;
}

Decision Gate::next(Instant now) {
  forward(now);
  const bool regular_first = high_in_row_ >= kHighInRowMax;
  const Head first = regular_first ? Head::kRegular : Head::kHigh;
  const Head second = regular_first ? Head::kHigh : Head::kRegular;
  // Most of the time one of them has nobody.
  const auto ask = [&](Head head, Urge urge) {
    return entrance(head).queued() == 0 ? Pick{} : pick_from(head, now_, urge);
  };
  Pick one = ask(first, Urge::kInTime);
  if (one.request != nullptr) return Decision::run(*one.request);
  Pick other = ask(second, Urge::kInTime);
  if (other.request != nullptr) return Decision::run(*other.request);
  Instant until = std::min(one.until, other.until);
  if (options_.tbf.sharing) {
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
  entrance(request.head_).completed(seated_of(request));
}

void Gate::withdraw(Request& request, Instant now) {
  WEIR_ASSERT(request.place_ == Request::Place::kQueued);
  entrance(request.head_).remove(request, seated_of(request), forward(now));
  request.place_ = Request::Place::kOutside;
}

void Gate::promote(Request& request, Instant now) {
  WEIR_ASSERT(request.place_ != Request::Place::kOutside);
  if (request.place_ != Request::Place::kQueued || request.head_ == Head::kHigh) return;
  entrance(Head::kRegular).remove(request, seated_of(request), forward(now));
  request.head_ = Head::kHigh;
  request.seated_ = &entrance(Head::kHigh).in_force();
  entrance(Head::kHigh).admit(request, now_);
}

void Gate::shutdown(Instant now) {
  forward(now);
  hold_regular(false);
  shut_down_ = true;
}

void Gate::hold_regular(bool is_held) {
  regular_slots_ = is_held && !shut_down_ ? 0 : options_.slots - options_.hp_slots;
}

std::size_t Gate::queued() const {
  return entrance(Head::kRegular).queued() + entrance(Head::kHigh).queued();
}

Policy& Gate::policy_in_force(Head head) { return *entrance(head).in_force().policy; }
const Policy& Gate::policy_in_force(Head head) const { return *entrance(head).in_force().policy; }

// One for each head. A tbf of both heads is one engine.
Result<Gate::Pair> Gate::make_policies(std::string_view name, std::string_view argument) {
  Pair made;
  if (name == Fifo::kName) return made;
  if (name == Crrn::kName) {
    for (auto& policy : made) policy = std::make_unique<Crrn>();
    return made;
  }
  if (name == TbfPolicy::kName) {
    const auto type = argument.empty() ? FieldSet::all() : FieldSet::parse_type(argument);
    if (!type) return tl::unexpected(type.error());
    const auto engine = std::make_shared<Tbf>(*type, options_.tbf, ++engines_made_);
    for (const Head head : kHeads) {
      made[index_of(head)] = std::make_unique<TbfPolicy>(engine, head);
    }
    return made;
  }
  return fail(std::errc::no_such_file_or_directory, quote(name), "no such policy",
              "there are fifo, crrn and tbf");
}

Result<void> Gate::start_policy(std::string_view name, std::string_view argument, Heads heads) {
  auto started = start(name, argument, heads);
  if (listener_ != nullptr) {
    listener_->policy_command(name, argument, heads, started.has_value());
  }
  return started;
}

Result<void> Gate::start(std::string_view name, std::string_view argument, Heads heads) {
  auto made = make_policies(name, argument);
  if (!made) return tl::unexpected(made.error());
  ++switches_;
  for (const Head head : kHeads) {
    if (!names(heads, head)) continue;
    if (name == Fifo::kName) {
      entrance(head).stop();
    } else if (!entrance(head).runs(name, argument)) {
      entrance(head).start(std::move((*made)[index_of(head)]), argument);
    }
  }
  return {};
}

Tbf* Gate::tbf(Head head) {
  Policy& policy = policy_in_force(head);
  return policy.name() == TbfPolicy::kName ? &static_cast<TbfPolicy&>(policy).tbf() : nullptr;
}

const Tbf* Gate::tbf(Head head) const {
  const Policy& policy = policy_in_force(head);
  return policy.name() == TbfPolicy::kName ? &static_cast<const TbfPolicy&>(policy).tbf() : nullptr;
}

bool Gate::set_crrn_quantum(Head head, std::uint16_t quantum) {
  Policy& policy = policy_in_force(head);
  const bool is_crrn = policy.name() == Crrn::kName;
  if (is_crrn) static_cast<Crrn&>(policy).set_quantum(quantum);
  if (listener_ != nullptr) listener_->quantum_command(head, quantum, is_crrn);
  return is_crrn;
}

// For the heads it names, as their engines would have it.
Result<RuleCommand> Gate::read_rule(std::string_view text) const {
  const Outline outline = outline_of(text);
  FieldSet type;
  for (const Head head : kHeads) {
    if (!names(outline.heads, head)) continue;
    const Tbf* const engine = tbf(head);
    if (engine == nullptr) {
      return fail(outline.starts ? std::errc::invalid_argument : std::errc::no_such_device,
                  head == Head::kRegular ? "regular head" : "high-priority head",
                  "tbf is not running there", "write tbf to nrs_policies first, or name one head");
    }
    if (!type.empty() && type != engine->type()) {
      return fail(std::errc::invalid_argument, "rule", "the heads run tbf of different types",
                  "write reg or hp in front of the command");
    }
    type = engine->type();
  }
  return parse_command(text, type, options_.nodemaps);
}

Result<void> Gate::apply_rule(std::string_view text, Instant now) {
  auto applied = apply(text, now);
  if (listener_ != nullptr) listener_->rule_command(text, applied.has_value(), now);
  return applied;
}

Result<void> Gate::apply(std::string_view text, Instant now) {
  auto command = read_rule(text);
  if (!command) return tl::unexpected(command.error());
  forward(now);
  Tbf* const regular = tbf(Head::kRegular);
  Tbf* const high = tbf(Head::kHigh);
  if (command->heads != Heads::kBoth) {
    return (command->heads == Heads::kRegular ? regular : high)->apply(*command, now_);
  }
  if (regular == high) return regular->apply(*command, now_);
  // Two engines: neither is touched before both have agreed.
  for (const Head head : kHeads) {
    if (auto checked = tbf(head)->rules(head).check(*command); !checked) return checked;
  }
  for (const Head head : kHeads) {
    command->heads = only(head);
    const auto applied = tbf(head)->apply(*command, now_);
    WEIR_ASSERT(applied.has_value());
  }
  return {};
}

Result<void> Gate::apply_rules(std::span<const std::string> commands, Instant now) {
  if (auto checked = check_rules(commands); !checked) return checked;
  for (const std::string& command : commands) {
    const auto applied = apply_rule(command, now);
    WEIR_ASSERT(applied.has_value());
  }
  return {};
}

Result<void> Gate::check_rules(std::span<const std::string> commands) const {
  RuleTrial trial(*this);
  for (const std::string& text : commands) {
    if (auto applied = trial.apply(text); !applied) {
      Error error = applied.error();
      error.where = quote(text) + (error.where.empty() ? "" : ", " + error.where);
      return tl::unexpected(std::move(error));
    }
  }
  return {};
}

Result<void> Gate::check_rule_text(std::string_view text) const {
  const auto command = read_rule(text);
  if (!command) return tl::unexpected(command.error());
  return {};
}

Gate::RuleTrial::RuleTrial(const Gate& gate) : gate_(gate) {
  for (const Head head : kHeads) {
    if (const Tbf* const engine = gate.tbf(head)) {
      lists_[index_of(head)] = engine->rules(head).copy();
    }
  }
}

Result<void> Gate::RuleTrial::apply(std::string_view command) {
  const auto read = gate_.read_rule(command);
  if (!read) return tl::unexpected(read.error());
  for (const Head head : kHeads) {
    if (!names(read->heads, head)) continue;
    if (auto checked = lists_[index_of(head)]->check(*read); !checked) return checked;
  }
  for (const Head head : kHeads) {
    if (!names(read->heads, head)) continue;
    const auto applied = lists_[index_of(head)]->apply(*read);
    WEIR_ASSERT(applied.has_value());
  }
  return {};
}

std::vector<Gate::PolicyStatus> Gate::policies(Head head) const {
  std::vector<PolicyStatus> all;
  for (const std::string_view name : kPolicyNames) {
    PolicyStatus status{.name = name, .argument = {}, .is_fallback = name == Fifo::kName};
    entrance(head).add_status(status);
    all.push_back(status);
  }
  return all;
}

}  // namespace weir
