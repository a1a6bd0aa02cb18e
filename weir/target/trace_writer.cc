// SPDX-License-Identifier: Apache-2.0
#include "weir/target/trace_writer.h"

#include <utility>

#include "weir/base/assert.h"
#include "weir/classify/share_level.h"

namespace weir {
namespace {

std::uint64_t ns_of(Nanoseconds time) { return static_cast<std::uint64_t>(time.count()); }

void append_fixed(std::string& to, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(number >> (8 * i)));
}

}  // namespace

// Records the calls of one Target.
class TraceWriter::Channel final : public TargetRecorder {
 public:
  Channel(TraceWriter& writer, std::uint32_t index) : writer_(writer), index_(index) {}

  void admitted(Request& request, Head head, Instant now) override {
    if (writer_.is_over_) return;
    const std::uint32_t place = writer_.place_of(request.attributes);
    request.number = writer_.admitted_++;
    describe(TraceKind::kAdmit, place, request.bytes, head, now);
  }
  void charged(const Request& request, Head head, Instant now) override {
    if (writer_.is_over_) return;
    const std::uint32_t place = writer_.place_of(request.attributes);
    describe(TraceKind::kCharge, place, request.bytes, head, now);
  }
  void decided(const Decision& decision, Instant now) override {
    switch (decision.kind()) {
      case Decision::Kind::kRun:
        return name(TraceKind::kRun, decision.request(), now);
      case Decision::Kind::kWait:
        begin(TraceKind::kWait, false, now);
        writer_.put(to_zigzag((decision.until() - now).count()));
        return writer_.finish();
      case Decision::Kind::kIdle:
        return plain(TraceKind::kIdle, now);
    }
  }
  void completed(const Request& request, const Outcome& outcome, Instant now) override {
    if (outcome.how == Outcome::How::kDone && !outcome.differs_from(request.bytes))
      return name(TraceKind::kComplete, request, now);
    const bool has_operations = outcome.operations != 1;
    begin(TraceKind::kComplete, true, now);
    writer_.put(writer_.admitted_ - request.number);
    writer_.put_byte(static_cast<std::uint8_t>(static_cast<std::uint8_t>(outcome.how) |
                                               (has_operations ? kTraceOperations : 0U)));
    writer_.put_optional(outcome.bytes, [](Bytes bytes) { return bytes.count(); });
    if (has_operations) writer_.put(outcome.operations);
    writer_.finish();
  }
  void deferred(const Request& request, Instant now) override {
    name(TraceKind::kDefer, request, now);
  }
  void resumed(const Request& request, Instant now) override {
    name(TraceKind::kResume, request, now);
  }
  void withdrawn(const Request& request, Instant now) override {
    name(TraceKind::kWithdraw, request, now);
  }
  void promoted(const Request& request, Instant now) override {
    name(TraceKind::kPromote, request, now);
  }
  void shut_down(Instant now) override { plain(TraceKind::kShutdown, now); }
  void nodes_set(const JobId& job, std::uint64_t nodes, bool is_done, Instant now) override {
    begin(TraceKind::kNodes, is_done, now);
    writer_.put_text(job.text());
    writer_.put(nodes);
    writer_.finish();
  }
  void node_weight_set(std::string_view path, std::uint64_t weight, bool is_done,
                       Instant now) override {
    begin(TraceKind::kWeight, is_done, now);
    writer_.put_text(path);
    writer_.put(weight);
    writer_.finish();
  }
  void capacity_set(const std::optional<Rate>& capacity, std::optional<CapacitySource> source,
                    Instant now) override {
    begin(TraceKind::kCapacity, false, now);
    writer_.put_byte(source ? static_cast<std::uint8_t>(1 + static_cast<int>(*source)) : 0);
    writer_.put_rate(capacity);
    writer_.finish();
  }
  void nodes_by_clients_set(bool counts, Instant now) override {
    begin(TraceKind::kClients, counts, now);
    writer_.finish();
  }
  void restored(const Controller::State& state, bool is_done, Instant now) override {
    for (const TreeAllocator::State::Node& node : state.tree.nodes) {
      write_accounts(node.allocator, now);
      begin(TraceKind::kNode, false, now);
      writer_.put(node.path.size());
      for (const JobId& value : node.path) writer_.put_text(value.text());
      writer_.put_state(node.allocator);
      writer_.finish();
    }
    write_accounts(state.allocator, now);
    begin(TraceKind::kRestore, is_done, now);
    writer_.put_state(state.allocator);
    writer_.finish();
  }
  void slices_set(std::span<const ClassSlice> slices, Instant now) override {
    for (const ClassSlice& one : slices) {
      begin(TraceKind::kSlice, false, now);
      writer_.put_text(one.rule);
      writer_.put_byte(one.key ? 1 : 0);
      if (one.key) writer_.put_fields(*one.key);
      writer_.put_rate(one.slice.ops);
      writer_.put_rate(one.slice.bytes);
      writer_.finish();
    }
    plain(TraceKind::kSlices, now);
  }
  void group_preferred(std::optional<std::uint32_t> group, Instant now) override {
    begin(TraceKind::kPrefer, false, now);
    writer_.put(group ? *group + std::uint64_t{1} : 0);
    writer_.finish();
  }
  void held(bool is_held, Instant now) override {
    begin(TraceKind::kHold, is_held, now);
    writer_.finish();
  }
  void period_ended(const PeriodReport& report, const std::optional<Rate>& capacity) override {
    begin(TraceKind::kPeriod, false, writer_.now_);
    writer_.put_fixed(sum_of(report, capacity));
    writer_.finish();
  }
  void policy_set(std::string_view policy, std::string_view argument, Heads heads, bool is_done,
                  Instant now) override {
    begin(TraceKind::kPolicy, is_done, now);
    writer_.put_byte(static_cast<std::uint8_t>(heads));
    writer_.put_text(policy);
    writer_.put_text(argument);
    writer_.finish();
  }
  void rule_applied(const RuleChange& change, bool is_done, Instant now) override {
    begin(TraceKind::kRule, is_done, now);
    writer_.put_text(print(change));
    writer_.finish();
  }
  void tunable_set(Head head, std::string_view tunable, std::uint64_t value, bool is_done,
                   Instant now) override {
    begin(TraceKind::kTunable, is_done, now);
    writer_.put_byte(static_cast<std::uint8_t>(head));
    writer_.put_text(tunable);
    writer_.put(value);
    writer_.finish();
  }

 private:
  void begin(TraceKind kind, bool flag, Instant now) { writer_.begin_for(index_, kind, flag, now); }
  void plain(TraceKind kind, Instant now) {
    begin(kind, false, now);
    writer_.finish();
  }
  void write_accounts(const Allocator::State& state, Instant now) {
    for (const Ledger::Account& account : state.ledger.accounts) {
      begin(TraceKind::kAccount, false, now);
      writer_.put_account(account);
      writer_.finish();
    }
  }
  void describe(TraceKind kind, std::uint32_t attributes, Bytes bytes, Head head, Instant now) {
    begin(kind, head == Head::kHigh, now);
    writer_.put(attributes);
    writer_.put(bytes.count());
    writer_.finish();
  }
  void name(TraceKind kind, const Request& request, Instant now) {
    begin(kind, false, now);
    writer_.put(writer_.admitted_ - request.number);
    writer_.finish();
  }

  TraceWriter& writer_;
  std::uint32_t index_;
};

TraceWriter::TraceWriter(const TraceHead& head, Sink sink) : sink_(std::move(sink)) {
  records_.reserve(kTraceBlockBytes + 256);
  begin(TraceKind::kHead, false, now_);
  put_text(head.build);
  put(head.seed);
}

TraceWriter::~TraceWriter() = default;

TargetRecorder& TraceWriter::add_target(const TraceTarget& target) {
  chosen_ = static_cast<std::uint32_t>(channels_.size());
  channels_.push_back(std::make_unique<Channel>(*this, chosen_));
  begin(TraceKind::kTarget, false, target.made_at);
  put_text(target.name);
  put_options(target.options);
  put(target.nodemaps.size());
  for (const std::string& name : target.nodemaps) put_text(name);
  return *channels_.back();
}

// ---- blocks ----

void TraceWriter::flush() {
  if (!has_some()) return;
  std::string block;
  block.reserve(records_.size() + kTraceBlockHead + kTraceMagic.size() + 1);
  if (!is_begun_) {
    is_begun_ = true;
    block += kTraceMagic;
    block.push_back(static_cast<char>(kTraceVersion));
  }
  sum_ = trace_checksum(sum_, records_);
  append_fixed(block, records_.size(), 4);
  append_fixed(block, sum_, 8);
  block += records_;
  records_.clear();
  sink_(std::move(block));
}

void TraceWriter::end(bool is_early) {
  if (is_over_) return;
  begin(TraceKind::kEnd, is_early, now_);
  flush();
  is_over_ = true;
}

// ---- records ----

void TraceWriter::begin(TraceKind kind, bool flag, Instant now) {
  const bool has_time = now != now_;
  put_byte(static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) |
                                     (has_time ? kTraceTimeFollows : 0) | (flag ? kTraceFlag : 0)));
  if (has_time) put(to_zigzag((now - now_).count()));
  now_ = now;
}

// Records after a stop are assembled and dropped: they are rare and short.
void TraceWriter::begin_for(std::uint32_t target, TraceKind kind, bool flag, Instant now) {
  if (is_over_) records_.clear();
  if (chosen_ != target) {
    chosen_ = target;
    begin(TraceKind::kChoose, false, now_);
    put(target);
  }
  begin(kind, flag, now);
}

void TraceWriter::put(std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) put_byte(static_cast<std::uint8_t>(number | 0x80));
  put_byte(static_cast<std::uint8_t>(number));
}

void TraceWriter::put_fixed(std::uint64_t number) { append_fixed(records_, number, 8); }

void TraceWriter::put_text(std::string_view text) {
  const std::string_view kept = text.substr(0, kTraceTextMax);
  put(kept.size());
  records_ += kept;
}

template <class T, class Get>
void TraceWriter::put_optional(const std::optional<T>& value, Get get) {
  put_byte(value ? 1 : 0);
  if (value) put(get(*value));
}

void TraceWriter::put_rate(const std::optional<Rate>& rate) {
  put_byte(rate ? 1 : 0);
  if (!rate) return;
  put(rate->tokens());
  put(rate->time_ns());
}

void TraceWriter::put_options(const Target::Options& options) {
  put(options.gate.slots);
  put(options.gate.hp_slots);
  put_byte(options.auto_slots ? 1 : 0);
  put_optional(options.latency_target, [](Nanoseconds time) { return ns_of(time); });
  const RuleOptions& rules = options.gate.rules;
  put(rules.depth_min.count());
  put(ns_of(rules.depth_time));
  put(rules.byte_depth_min.count());
  put(rules.classes_max);
  put_byte(rules.in_cluster ? 1 : 0);
  put(rules.groups.size());
  for (const NidList& group : rules.groups) put_text(group.text());
  put_byte(options.controller ? 1 : 0);
  if (options.controller) {
    const ControllerOptions& controller = *options.controller;
    put_byte(static_cast<std::uint8_t>(controller.demand));
    put(ns_of(controller.period));
    put_byte(controller.lending ? 1 : 0);
    put_optional(controller.half_life, [](Nanoseconds time) { return ns_of(time); });
    put_byte(controller.floor ? 1 : 0);
    put_optional(controller.depth, [](Tokens depth) { return depth.count(); });
    put(controller.jobs_max);
  }
  put_rate(options.capacity);
  put_byte(options.estimate_capacity ? 1 : 0);
  put_byte(static_cast<std::uint8_t>(options.cost.kind()));
  put(options.cost.base());
  put(options.cost.per_kib());
  put_byte(options.nodes_by_clients ? 1 : 0);
  put(options.jobs_max);
  put(options.share_levels.size());
  for (const FieldSet level : options.share_levels) put_text(print_level(level));
}

void TraceWriter::put_account(const Ledger::Account& account) {
  put_text(account.job.text());
  for (const std::int64_t number : {account.record, account.remainder, account.fade_remainder,
                                    account.lent_remainder, account.borrowed_remainder}) {
    put(to_zigzag(number));
  }
  for (const std::uint64_t number :
       {account.allotted, account.last_active, account.lent.count(), account.borrowed.count(),
        account.lent_sum.count(), account.borrowed_sum.count()}) {
    put(number);
  }
}

void TraceWriter::put_state(const Allocator::State& state) {
  const Ledger::State& ledger = state.ledger;
  put(ledger.period);
  put_optional(ledger.half_life, [](Nanoseconds time) { return ns_of(time); });
  put(ns_of(ledger.fade_period));
  put_fixed(static_cast<std::uint64_t>(ledger.fade_carry >> 64));
  put_fixed(static_cast<std::uint64_t>(ledger.fade_carry));
  put(ledger.written_off);
  put(state.carry);
  put(state.carry_of);
}

std::uint32_t TraceWriter::place_of(const Attributes& attributes) {
  if (const auto found = places_.find(attributes); found != places_.end()) return found->second;
  if (places_.size() == kTraceAttributesMax) places_.clear();
  const auto place = static_cast<std::uint32_t>(places_.size());
  places_.emplace(attributes, place);
  put_attributes(attributes);
  return place;
}

void TraceWriter::put_attributes(const Attributes& attributes) {
  begin(TraceKind::kAttributes, false, now_);
  put_fields(attributes);
}

void TraceWriter::put_fields(const Attributes& attributes) {
  put_text(attributes.job.text());
  put(attributes.nid.high);
  put(attributes.nid.low);
  put(attributes.nid.net_number);
  put_byte(static_cast<std::uint8_t>(attributes.nid.net));
  put_byte(static_cast<std::uint8_t>(attributes.nid.family));
  for (const std::uint32_t id :
       {attributes.opcode, attributes.uid, attributes.gid, attributes.projid, attributes.nodemap}) {
    put(id);
  }
  put_text(attributes.export_name.text());
}

}  // namespace weir
