// SPDX-License-Identifier: Apache-2.0
#include "weir/target/trace_reader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "weir/adapt/share_levels.h"
#include "weir/classify/share_level.h"

namespace weir {
namespace {

constexpr std::uint32_t kSlotsMax = 1U << 20;
constexpr std::uint64_t kEntriesMax = std::uint64_t{1} << 22;  // of tables allocated at the start
constexpr Nanoseconds kLong = BucketShape::kFillTimeMax;
constexpr std::uint32_t kTargetsMax = 65'536;
constexpr std::size_t kNodemapsMax = 65'536;
constexpr std::uint64_t kGroupsMax = 65'536;

std::uint64_t fixed_at(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < count; ++i) {
    number |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  }
  return number;
}

}  // namespace

const TraceRecord* TraceReader::end(Ending ending, std::string_view complaint) {
  ending_ = ending;
  complaint_ = complaint;
  return nullptr;
}

const TraceRecord* TraceReader::next() {
  while (ending_ == Ending::kNotYet) {
    if (at_ == block_.size()) {
      if (!read_block()) return nullptr;
      continue;
    }
    if (!read_record()) {
      return end(Ending::kDamaged,
                 "a record is not valid, although the checksum of its block is correct");
    }
    switch (record_.kind) {
      case TraceKind::kChoose:
      case TraceKind::kAttributes:
      case TraceKind::kAccount:
      case TraceKind::kNode:
      case TraceKind::kSlice:
        break;  // only for this reader
      case TraceKind::kEnd:
        return end(record_.flag ? Ending::kEarly : Ending::kWhole,
                   record_.flag
                       ? "the server stopped the trace because the disk was too slow or full"
                       : "");
      default:
        return &record_;
    }
  }
  return nullptr;
}

// ---- blocks ----

bool TraceReader::read_block() {
  const bool is_first = good_bytes_ == 0;
  const std::size_t extra = is_first ? kTraceMagic.size() + 1 : 0;
  std::string head(extra + kTraceBlockHead, '\0');
  const auto got = source_(head);
  if (!got) {
    end(Ending::kUnread, got.error().message());
    return false;
  }
  const std::string_view magic = std::string_view(head).substr(0, std::min(*got, extra));
  if (is_first && !magic.starts_with(kTraceMagic)) {
    end(Ending::kForeign, "this is not a trace of weir serve");
    return false;
  }
  if (is_first && magic.size() == extra && magic.back() != static_cast<char>(kTraceVersion)) {
    end(Ending::kForeign,
        "the trace has another format version; use the version of weir that wrote it");
    return false;
  }
  if (*got < head.size()) {
    end(Ending::kCut, "the trace ends without its last record; the server was killed");
    return false;
  }
  const std::uint64_t size = fixed_at(head, extra, 4);
  const std::uint64_t sum = fixed_at(head, extra + 4, 8);
  if (size == 0 || size > kTraceBlockMax) {
    end(Ending::kDamaged, "the size of a block is not valid");
    return false;
  }
  block_.resize(size);
  at_ = 0;
  const auto filled = source_(block_);
  if (!filled || *filled < size) {
    block_.clear();
    end(filled ? Ending::kCut : Ending::kUnread,
        filled ? "the trace ends within a block; the server was killed" : filled.error().message());
    return false;
  }
  sum_ = trace_checksum(sum_, block_);
  if (sum != sum_) {
    block_.clear();
    end(Ending::kDamaged, "the checksum of a block is wrong");
    return false;
  }
  good_bytes_ += head.size() + size;
  return true;
}

// ---- numbers ----

bool TraceReader::get_byte(std::uint8_t& byte, std::uint8_t most) {
  if (at_ == block_.size()) return false;
  byte = static_cast<std::uint8_t>(block_[at_++]);
  return byte <= most;
}

bool TraceReader::get_flag(bool& flag) {
  std::uint8_t byte = 0;
  if (!get_byte(byte, 1)) return false;
  flag = byte != 0;
  return true;
}

bool TraceReader::get(std::uint64_t& number, std::uint64_t most) {
  number = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    std::uint8_t byte = 0;
    if (!get_byte(byte, UINT8_MAX)) return false;
    number |= std::uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) == 0) return number <= most;
  }
  return false;
}

template <class T>
bool TraceReader::get_as(T& number, std::uint64_t most) {
  std::uint64_t wide = 0;
  if (!get(wide, most)) return false;
  number = static_cast<T>(wide);
  return true;
}

bool TraceReader::get_time(Nanoseconds& time, Nanoseconds least, Nanoseconds most) {
  std::uint64_t ns = 0;
  if (!get(ns, static_cast<std::uint64_t>(most.count()))) return false;
  time = Nanoseconds{static_cast<std::int64_t>(ns)};
  return time >= least;
}

bool TraceReader::get_fixed(std::uint64_t& number) {
  if (block_.size() - at_ < sizeof number) return false;
  number = fixed_at(block_, at_, sizeof number);
  at_ += sizeof number;
  return true;
}

bool TraceReader::get_text(std::string_view& text, std::size_t most) {
  std::uint64_t size = 0;
  if (!get(size, most) || size > block_.size() - at_) return false;
  text = std::string_view(block_).substr(at_, size);
  at_ += size;
  return true;
}

bool TraceReader::get_rate(std::optional<Rate>& rate) {
  bool is_there = false;
  rate.reset();
  if (!get_flag(is_there)) return false;
  if (!is_there) return true;
  std::uint64_t tokens = 0;
  Nanoseconds time{0};
  if (!get(tokens) || tokens == 0 || !get_time(time, Nanoseconds{1}, kLong)) return false;
  rate.emplace(Tokens{tokens}, time);
  return *rate <= Rate(Tokens{kTokensPerNanosecondMax}, Nanoseconds{1});
}

// ---- records ----

bool TraceReader::read_record() {
  std::uint8_t tag = 0;
  if (!get_byte(tag, UINT8_MAX)) return false;
  const auto kind = static_cast<std::uint8_t>(tag & kTraceKindMask);
  if (kind >= kTraceKinds || (tag & 0x80U) != 0) return false;
  if ((tag & kTraceTimeFollows) != 0) {
    std::uint64_t difference = 0;
    if (!get(difference)) return false;
    const std::int64_t from = ns_of(now_);
    const std::int64_t by = from_zigzag(difference);
    std::int64_t to = 0;
    if (__builtin_add_overflow(from, by, &to)) return false;
    if (to < -kTimelineHalf.count() || to > kTimelineHalf.count()) return false;
    now_ = instant_at(to);
  }
  record_ = {};
  record_.kind = static_cast<TraceKind>(kind);
  record_.flag = (tag & kTraceFlag) != 0;
  record_.now = now_;
  const bool is_head = record_.kind == TraceKind::kHead;
  if (is_head == has_head_) return false;  // must be first, and only once
  has_head_ = true;
  const bool needs_target =
      !is_head && record_.kind != TraceKind::kTarget && record_.kind != TraceKind::kEnd;
  if (needs_target && chosen_ >= targets_) return false;
  record_.target = chosen_;
  return read_body();
}

bool TraceReader::read_body() {
  std::uint64_t number = 0;
  switch (record_.kind) {
    case TraceKind::kHead:
      return get_text(record_.text) && get(record_.number);
    case TraceKind::kTarget:
      return read_target();
    case TraceKind::kChoose:
      return targets_ > 0 && get_as(chosen_, targets_ - 1);
    case TraceKind::kAttributes:
      return read_attributes();
    case TraceKind::kAdmit:
      record_.request = admitted_++;
      return read_described();
    case TraceKind::kCharge:
      return read_described();
    case TraceKind::kWait:
      if (!get(number)) return false;
      record_.until =
          instant_at(static_cast<std::int64_t>(static_cast<std::uint64_t>(ns_of(now_)) +
                                               static_cast<std::uint64_t>(from_zigzag(number))));
      return true;
    case TraceKind::kComplete:
      return read_request() && read_outcome();
    case TraceKind::kRun:
    case TraceKind::kWithdraw:
    case TraceKind::kPromote:
    case TraceKind::kDefer:
    case TraceKind::kResume:
      return read_request();
    case TraceKind::kIdle:
    case TraceKind::kShutdown:
    case TraceKind::kClients:
    case TraceKind::kHold:
    case TraceKind::kEnd:
      return true;
    case TraceKind::kPeriod:
      return get_fixed(record_.number);
    default:
      return read_command();
  }
}

// Commands for a Target other than requests.
bool TraceReader::read_command() {
  std::uint64_t number = 0;
  switch (record_.kind) {
    case TraceKind::kPolicy: {
      std::uint8_t heads = 0;
      if (!get_byte(heads, static_cast<std::uint8_t>(Heads::kHigh))) return false;
      record_.heads = static_cast<Heads>(heads);
      return get_text(record_.text) && get_text(record_.argument);
    }
    case TraceKind::kRule:
      return get_text(record_.text);
    case TraceKind::kTunable: {
      bool high = false;
      if (!get_flag(high)) return false;
      record_.head = high ? Head::kHigh : Head::kRegular;
      return get_text(record_.text) && get(record_.number);
    }
    case TraceKind::kAccount:
      return read_account();
    case TraceKind::kNode:
      return read_node();
    case TraceKind::kRestore:
      if (!read_state(state_.allocator)) return false;
      state_.tree.nodes = std::exchange(nodes_, {});
      node_accounts_ = 0;
      record_.state = &state_;
      return true;
    case TraceKind::kSlice:
      return read_slice();
    case TraceKind::kSlices:
      record_.slices = slices_;
      are_slices_told_ = true;
      return true;
    case TraceKind::kPrefer:
      if (!get(number, kGroupsMax)) return false;
      if (number > 0) record_.group = static_cast<std::uint32_t>(number - 1);
      return true;
    case TraceKind::kNodes:
      return get_text(record_.text, JobId::kSizeMax) && get(record_.number);
    case TraceKind::kWeight:
      return get_text(record_.text) && get(record_.number);
    case TraceKind::kCapacity: {
      std::uint8_t source = 0;
      if (!get_byte(source, 2)) return false;
      if (source > 0) record_.source = static_cast<CapacitySource>(source - 1);
      return get_rate(record_.rate);
    }
    default:
      return false;
  }
}

bool TraceReader::read_request() {
  std::uint64_t back = 0;
  if (!get(back, admitted_) || back == 0) return false;
  record_.request = admitted_ - back;
  return true;
}

bool TraceReader::read_described() {
  std::uint64_t place = 0;
  if (attributes_.empty() || !get(place, attributes_.size() - 1)) return false;
  record_.attributes = &attributes_[place];
  record_.head = record_.flag ? Head::kHigh : Head::kRegular;
  std::uint64_t bytes = 0;
  if (!get(bytes, kTraceRequestMax)) return false;
  record_.bytes = Bytes{bytes};
  return true;
}

bool TraceReader::read_outcome() {
  if (!record_.flag) return true;
  std::uint8_t how = 0;
  constexpr auto kLast = static_cast<std::uint8_t>(Outcome::How::kNotStarted);
  if (!get_byte(how, kLast | kTraceOperations)) return false;
  const bool has_operations = (how & kTraceOperations) != 0;
  how &= static_cast<std::uint8_t>(~kTraceOperations);
  if (how > kLast) return false;
  record_.outcome.how = static_cast<Outcome::How>(how);
  bool has_bytes = false;
  if (!get_flag(has_bytes)) return false;
  std::uint64_t bytes = 0;
  if (has_bytes && !get(bytes, kTraceRequestMax)) return false;
  if (has_bytes) record_.outcome.bytes = Bytes{bytes};
  std::uint64_t operations = 1;
  if (has_operations && (!get(operations, UINT32_MAX) || operations == 0)) return false;
  record_.outcome.operations = static_cast<std::uint32_t>(operations);
  return true;
}

bool TraceReader::get_signed(std::int64_t& number) {
  std::uint64_t zigzag = 0;
  if (!get(zigzag)) return false;
  number = from_zigzag(zigzag);
  return true;
}

bool TraceReader::get_tokens(Tokens& tokens) {
  std::uint64_t count = 0;
  if (!get(count)) return false;
  tokens = Tokens{count};
  return true;
}

bool TraceReader::read_account() {
  Ledger::Account& one = accounts_.emplace_back();
  std::string_view job;
  if (accounts_.size() + node_accounts_ > kEntriesMax || !get_text(job, JobId::kSizeMax)) {
    return false;
  }
  one.job = JobId(job);
  return get_signed(one.record) && get_signed(one.remainder) && get_signed(one.fade_remainder) &&
         get_signed(one.lent_remainder) && get_signed(one.borrowed_remainder) &&
         get(one.allotted) && get(one.last_active) && get_tokens(one.lent) &&
         get_tokens(one.borrowed) && get_tokens(one.lent_sum) && get_tokens(one.borrowed_sum);
}

// Controller::restore() rejects invalid values.
bool TraceReader::read_state(Allocator::State& state) {
  state = {};
  Ledger::State& ledger = state.ledger;
  ledger.accounts = std::exchange(accounts_, {});
  bool is_there = false;
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  if (!get(ledger.period) || !get_flag(is_there)) return false;
  if (is_there && !get_time(ledger.half_life.emplace(), Nanoseconds{0}, Nanoseconds::max())) {
    return false;
  }
  if (!get_time(ledger.fade_period, Nanoseconds{0}, Nanoseconds::max()) || !get_fixed(high) ||
      !get_fixed(low) || !get(ledger.written_off)) {
    return false;
  }
  ledger.fade_carry = static_cast<unsigned __int128>(high) << 64 | low;
  return get(state.carry) && get(state.carry_of);
}

bool TraceReader::read_node() {
  TreeAllocator::State::Node node;
  std::uint64_t values = 0;
  if (nodes_.size() >= kEntriesMax || !get(values, kShareLevelsMax)) return false;
  for (; values > 0; --values) {
    std::string_view value;
    if (!get_text(value, JobId::kSizeMax)) return false;
    node.path.emplace_back(value);
  }
  node_accounts_ += accounts_.size();
  if (!read_state(node.allocator)) return false;
  nodes_.push_back(std::move(node));
  return true;
}

bool TraceReader::read_slice() {
  if (are_slices_told_) {
    slices_.clear();
    slice_names_.clear();
    are_slices_told_ = false;
  }
  std::string_view rule;
  bool has_key = false;
  if (slices_.size() >= kEntriesMax || !get_text(rule) || !get_flag(has_key)) return false;
  ClassSlice& one = slices_.emplace_back();
  one.rule = slice_names_.emplace_back(rule);
  if (has_key && !read_fields(one.key.emplace())) return false;
  return get_rate(one.slice.ops) && get_rate(one.slice.bytes);
}

bool TraceReader::read_attributes() {
  if (attributes_.size() == kTraceAttributesMax) attributes_.clear();
  return read_fields(attributes_.emplace_back());
}

bool TraceReader::read_fields(Attributes& one) {
  std::string_view job;
  std::uint8_t net = 0;
  std::uint8_t family = 0;
  if (!get_text(job, JobId::kSizeMax)) return false;
  one.job = JobId(job);
  if (!get(one.nid.high) || !get(one.nid.low) || !get_as(one.nid.net_number) ||
      !get_byte(net, static_cast<std::uint8_t>(NetType::kBxi3f)) ||
      !get_byte(family, static_cast<std::uint8_t>(AddressFamily::kNumber))) {
    return false;
  }
  one.nid.net = static_cast<NetType>(net);
  one.nid.family = static_cast<AddressFamily>(family);
  for (std::uint32_t* id : {&one.opcode, &one.uid, &one.gid, &one.projid, &one.nodemap}) {
    if (!get_as(*id)) return false;
  }
  std::string_view name;
  if (!get_text(name, ExportName::kSizeMax)) return false;
  one.export_name = ExportName(name);
  return true;
}

bool TraceReader::read_target() {
  std::string_view text;
  made_ = {};
  if (targets_ == kTargetsMax || !get_text(text)) return false;
  made_.name = text;
  made_.made_at = now_;
  std::uint64_t names = 0;
  if (!read_options(made_.options) || !get(names, kNodemapsMax)) return false;
  for (; names > 0; --names) {
    if (!get_text(text)) return false;
    made_.nodemaps.emplace_back(text);
  }
  made_.options.gate.nodemaps = nodemaps_named(made_.nodemaps);
  record_.made = &made_;
  chosen_ = targets_++;
  record_.target = chosen_;
  return true;
}

bool TraceReader::read_groups(std::vector<NidList>& groups) {
  std::uint64_t count = 0;
  if (!get(count, kGroupsMax)) return false;
  for (; count > 0; --count) {
    std::string_view text;
    if (!get_text(text)) return false;
    auto group = NidList::parse(text);
    if (!group) return false;
    groups.push_back(std::move(*group));
  }
  return true;
}

bool TraceReader::read_options(Target::Options& options) {
  RuleOptions& rules = options.gate.rules;
  std::uint64_t depth = 0;
  std::uint64_t byte_depth = 0;
  if (!get_as(options.gate.slots, kSlotsMax) || options.gate.slots == 0 ||
      !get_as(options.gate.hp_slots, options.gate.slots - 1) || !read_slots(options) ||
      !get(depth, kBurstTokensMax) || depth == 0 ||
      !get_time(rules.depth_time, Nanoseconds{0}, std::chrono::hours{1}) ||
      !get(byte_depth, kBurstTokensMax) || byte_depth == 0 ||
      !get_as(rules.classes_max, kEntriesMax) || !get_flag(rules.in_cluster) ||
      !read_groups(rules.groups)) {
    return false;
  }
  rules.depth_min = Tokens{depth};
  rules.byte_depth_min = Bytes{byte_depth};
  bool is_there = false;
  if (!get_flag(is_there)) return false;
  if (is_there && !read_controller(options.controller.emplace())) return false;
  std::uint8_t kind = 0;
  std::uint32_t base = 0;
  std::uint32_t per_kib = 0;
  if (!get_rate(options.capacity) || !get_flag(options.estimate_capacity) ||
      !get_byte(kind, static_cast<std::uint8_t>(Cost::Kind::kAffine)) || !get_as(base) ||
      !get_as(per_kib) || !get_flag(options.nodes_by_clients) ||
      !get_as(options.jobs_max, kEntriesMax) || options.jobs_max == 0 ||
      !read_levels(options.share_levels)) {
    return false;
  }
  options.cost = kind == 0 ? Cost::op() : kind == 1 ? Cost::bytes() : Cost::affine(base, per_kib);
  return true;
}

bool TraceReader::read_levels(std::vector<FieldSet>& levels) {
  std::uint64_t count = 0;
  if (!get(count, kShareLevelsMax - 1)) return false;
  for (; count > 0; --count) {
    std::string_view text;
    if (!get_text(text)) return false;
    const auto level = read_level(text);
    if (!level || level->size() > 1) return false;
    levels.push_back(*level);
  }
  return true;
}

bool TraceReader::read_slots(Target::Options& options) {
  bool has_target = false;
  if (!get_flag(options.auto_slots) || !get_flag(has_target)) return false;
  return !has_target || get_time(options.latency_target.emplace(), Nanoseconds{1}, kLong);
}

bool TraceReader::read_controller(ControllerOptions& controller) {
  std::uint8_t demand = 0;
  bool is_there = false;
  if (!get_byte(demand, static_cast<std::uint8_t>(ControllerOptions::Demand::kBacklog)) ||
      !get_time(controller.period, ControllerOptions::kPeriodMin, ControllerOptions::kPeriodMax) ||
      !get_flag(controller.lending) || !get_flag(is_there)) {
    return false;
  }
  controller.demand = static_cast<ControllerOptions::Demand>(demand);
  controller.half_life.reset();
  if (is_there && !get_time(controller.half_life.emplace(), Nanoseconds{1}, kLong)) return false;
  if (!get_flag(controller.floor) || !get_flag(is_there)) return false;
  std::uint64_t depth = 0;
  if (is_there && (!get(depth, kBurstTokensMax) || depth == 0)) return false;
  if (is_there) controller.depth = Tokens{depth};
  return get_as(controller.jobs_max, kEntriesMax) && controller.jobs_max > 0;
}

}  // namespace weir
