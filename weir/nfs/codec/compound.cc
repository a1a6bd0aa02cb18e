// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/compound.h"

#include <algorithm>
#include <array>

#include "weir/nfs/codec/form.h"

namespace weir::nfs {
namespace {

constexpr std::uint32_t kClaimPrevious = 1;  // of OPEN: a reclaim
constexpr std::uint32_t kOpenCreate = 1;     // OPEN4_CREATE

// The order of kinds: the most expensive operation determines the kind of a compound.
constexpr std::size_t rank(OperationKind kind) {
  constexpr std::array<OperationKind, kOperationKinds> kCheapFirst = {
      OperationKind::kOther,          OperationKind::kLock,  OperationKind::kMetadataRead,
      OperationKind::kMetadataChange, OperationKind::kFlush, OperationKind::kZero,
      OperationKind::kDiscard,        OperationKind::kRead,  OperationKind::kWrite,
  };
  std::size_t rank = 0;
  while (kCheapFirst[rank] != kind) ++rank;
  return rank;
}

// Walks the operations of one call.
class CallWalk {
 public:
  CallWalk(XdrReader& reader, const CostModel& model, CompoundCall& call)
      : reader_(reader), model_(model), call_(call) {}

  void run();

 private:
  bool step();
  void read_arguments(std::uint32_t number, const Operation& operation);
  void read_sequence();
  bool read_lock_reclaim() const;
  void read_open(const Operation& operation);
  void read_write();
  void read_server_side(std::uint32_t number, const Operation& operation);
  void count(std::uint32_t number, const Operation& operation);
  void judge();

  XdrReader& reader_;
  const CostModel& model_;
  CompoundCall& call_;
  bool creates_ = false;    // the current operation is an OPEN that may create a file
  bool reclaims_ = false;   // the current operation is an OPEN or LOCK that reclaims
  bool at_root_ = false;    // the current file handle is the root's
  bool only_state_ = true;  // only Turn::kState and kHandle, and GETATTR of the root
  bool moves_bytes_ = false;
  std::uint32_t attribute_reads_ = 0;  // GETATTR
  OperationKind kind_ = OperationKind::kOther;
};

void CallWalk::run() {
  reader_.set_bound(kWalkBytesMax);
  call_.tag = reader_.opaque();
  call_.minor_version = reader_.u32();
  call_.count_at = reader_.position();
  call_.operation_count = reader_.u32();
  bool goes_on = reader_.good();
  while (goes_on && call_.walked < call_.operation_count) goes_on = step();
  if (goes_on || !reader_.good()) call_.end = walk_end(reader_);
  // The length of a message that has not arrived may not be known yet.
  if (call_.end != WalkEnd::kMissing) call_.sent += reader_.left();
  judge();
}

// Returns false if the walk stops here.
bool CallWalk::step() {
  if (call_.walked == kOperationsMax) {
    call_.end = WalkEnd::kTooManyOperations;
    return false;
  }
  const std::uint32_t number = reader_.u32();
  if (!reader_.good()) return false;
  const Operation* operation = find_operation(number);
  if (call_.walked == 0) call_.first_operation = number;
  if (call_.walked == 1) call_.second_operation = number;
  if (operation == nullptr || number >= kOperationsEnd) {
    call_.end = WalkEnd::kUnknownOperation;
    return false;
  }
  creates_ = reclaims_ = false;
  const std::uint64_t sent = call_.sent;
  read_arguments(number, *operation);
  // A payload that has not arrived yet counts like one that has.
  const bool is_on_its_way = reader_.state() == XdrState::kMissing && call_.sent > sent;
  if (!reader_.good() && !is_on_its_way) return false;
  count(number, *operation);
  ++call_.walked;
  return reader_.good();
}

void CallWalk::read_arguments(std::uint32_t number, const Operation& operation) {
  switch (static_cast<Op>(number)) {
    case Op::kSequence:
      read_sequence();
      break;
    case Op::kPutFh: {
      const Bytes handle = reader_.opaque(kFileHandle4Max);
      if (call_.file_handle.empty()) call_.file_handle = handle;
      break;
    }
    case Op::kRead:
    case Op::kReadPlus:
      reader_.skip(16 + 8);
      call_.asked += reader_.u32();
      break;
    case Op::kReadDir:
      reader_.skip(8 + 8 + 4);
      call_.asked += reader_.u32();
      walk(reader_, "b");
      break;
    case Op::kWrite:
      read_write();
      break;
    case Op::kSetXattr:
      reader_.skip(4);
      reader_.opaque();
      call_.sent += reader_.opaque().size();
      break;
    case Op::kOpen:
      read_open(operation);
      break;
    case Op::kLock:
      reclaims_ = read_lock_reclaim();
      walk(reader_, operation.arguments);
      break;
    case Op::kSetClientId:
    case Op::kExchangeId: {
      XdrReader owner = reader_;
      owner.skip(8);
      call_.client_owner = owner.opaque();
      walk(reader_, operation.arguments);
      break;
    }
    default:
      if (operation.turn == Turn::kBytes) {
        read_server_side(number, operation);
      } else {
        walk(reader_, operation.arguments);
      }
  }
}

void CallWalk::read_sequence() {
  SlotUse use = {.session_id = reader_.fixed(kSessionIdBytes),
                 .sequence = reader_.u32(),
                 .slot = reader_.u32(),
                 .highest_slot = reader_.u32(),
                 .is_cached = reader_.u32() != 0};
  if (!reader_.good() || call_.walked > 0) return;
  call_.slot = use;
  call_.sequence_end = reader_.position();
}

bool CallWalk::read_lock_reclaim() const {
  XdrReader fields = reader_;
  fields.u32();  // the type of the lock
  return fields.u32() == 1;
}

void CallWalk::read_open(const Operation& operation) {
  XdrReader type = reader_;
  walk(type, "12 8o");
  creates_ = type.u32() == kOpenCreate;
  reclaims_ = walk(reader_, operation.arguments) == kClaimPrevious;
}

void CallWalk::read_write() {
  reader_.skip(16 + 8 + 4);
  call_.sent += reader_.payload();
}

void CallWalk::read_server_side(std::uint32_t number, const Operation& operation) {
  XdrReader fields = reader_;
  std::uint64_t count = 0;
  switch (static_cast<Op>(number)) {
    case Op::kCopy:
    case Op::kClone:
      fields.skip(32 + 16);
      count = fields.u64();
      break;
    case Op::kWriteSame: {
      fields.skip(20 + 8);
      const std::uint64_t block = fields.u64();
      const std::uint64_t blocks = fields.u64();
      if (__builtin_mul_overflow(block, blocks, &count)) count = ~std::uint64_t{0};
      if (count == 0) count = 1;  // 0 means none here, not "to the end"
      break;
    }
    default:  // ALLOCATE, DEALLOCATE
      fields.skip(16 + 8);
      count = fields.u64();
  }
  walk(reader_, operation.arguments);
  if (reader_.good()) {
    call_.server_side = saturating_add(call_.server_side, model_.server_side(count));
  }
}

// Counts the operation in the compound.
void CallWalk::count(std::uint32_t number, const Operation& operation) {
  call_.holds.set(number);
  if (operation.turn == Turn::kBytes) moves_bytes_ = true;
  if (operation.turn == Turn::kRelease || reclaims_) call_.releases = true;
  const bool is_root_attribute = is(number, Op::kGetAttr) && at_root_;
  if (operation.turn != Turn::kState && operation.turn != Turn::kHandle && !is_root_attribute) {
    only_state_ = false;
    if (is(number, Op::kGetAttr)) {
      ++attribute_reads_;
    } else {
      ++call_.files_touched;
    }
  }
  if (is(number, Op::kPutRootFh)) {
    at_root_ = true;
  } else if (!is(number, Op::kGetFh) && !is(number, Op::kGetAttr)) {
    at_root_ = false;
  }
  const OperationKind kind = creates_ ? OperationKind::kMetadataChange : operation.kind;
  if (rank(kind) > rank(kind_)) kind_ = kind;
}

void CallWalk::judge() {
  if (call_.files_touched == 0 && attribute_reads_ > 0) call_.files_touched = 1;
  // Reads and writes in one compound: whichever moves more.
  const bool reads = call_.has(Op::kRead) || call_.has(Op::kReadPlus);
  if (kind_ == OperationKind::kWrite && reads && call_.asked > call_.sent + call_.server_side) {
    kind_ = OperationKind::kRead;
  }
  call_.kind = kind_;
  call_.cost = {1, saturating_add(call_.asked, saturating_add(call_.sent, call_.server_side))};
  if (call_.end != WalkEnd::kEnd) return;  // the rest may contain any operation
  if (only_state_) {
    call_.urgency = Urgency::kFree;
    call_.cost = {};
  } else if (call_.releases && !moves_bytes_) {
    call_.urgency = Urgency::kExempt;
  }
}

// ---- replies ----

// Attribute 10, lease_time, if present: the attributes before it have known lengths.
std::optional<std::uint32_t> read_lease(XdrReader attributes) {
  const std::uint32_t words = attributes.u32();
  const std::uint32_t mask = words > 0 ? attributes.u32() : 0;
  constexpr std::uint32_t kLease = 10;
  if (!attributes.good() || (mask >> kLease & 1U) == 0) return std::nullopt;
  attributes.skip((std::uint64_t{words} - 1) * 4);
  attributes.u32();  // the length of the values
  // supported_attrs, type, fh_expire_type, change, size, link_support, symlink_support, named_attr,
  // fsid, unique_handles
  constexpr std::array<std::string_view, kLease> kForms = {"b", "4", "4", "8",  "8",
                                                           "4", "4", "4", "16", "4"};
  for (std::uint32_t i = 0; i < kLease; ++i) {
    if ((mask >> i & 1U) != 0) walk(attributes, kForms[i]);
  }
  const std::uint32_t seconds = attributes.u32();
  if (!attributes.good()) return std::nullopt;
  return seconds;
}

// Walks the results of one reply.
class ReplyWalk {
 public:
  ReplyWalk(XdrReader& reader, CompoundReply& reply)
      : reader_(reader), reply_(reply), behind_(reader.left()) {}

  void run();

 private:
  bool step();
  void read_results(std::uint32_t number, const Operation& operation);
  void read_payload();
  void read_read_plus();
  void read_copy(const Operation& operation);
  void read_session(const Operation& operation);

  XdrReader& reader_;
  CompoundReply& reply_;
  std::uint64_t known_ = 0;  // bytes returned by the results so far
  std::uint64_t behind_;     // bytes of the message after them
};

void ReplyWalk::run() {
  reader_.set_bound(kWalkBytesMax);
  reply_.status = reader_.u32();
  reply_.tag = reader_.opaque();
  reply_.count_at = reader_.position();
  reply_.result_count = reader_.u32();
  bool goes_on = reader_.good();
  while (goes_on && reply_.walked < reply_.result_count) goes_on = step();
  if (goes_on || !reader_.good()) reply_.end = walk_end(reader_);
  if (reply_.end != WalkEnd::kEnd) reply_.returned = known_ + behind_;
}

bool ReplyWalk::step() {
  if (reply_.walked == kOperationsMax) {
    reply_.end = WalkEnd::kTooManyOperations;
    return false;
  }
  const std::uint32_t number = reader_.u32();
  const std::uint32_t status = reader_.u32();
  if (!reader_.good()) return false;
  const Operation* operation = find_operation(number);
  if (operation == nullptr) {
    reply_.end = WalkEnd::kUnknownOperation;
    return false;
  }
  reply_.last_operation = number;
  reply_.last_status = status;
  if (status == 0) {
    read_results(number, *operation);
    if (reader_.good() && number < kOperationsEnd) reply_.succeeded.set(number);
  } else if (operation->failure_status == status || operation->failure_status == kEveryFailure) {
    walk(reader_, operation->failure);
  }
  ++reply_.walked;
  if (!reader_.good()) return false;
  known_ = reply_.returned;
  behind_ = reader_.left();
  return true;
}

void ReplyWalk::read_results(std::uint32_t number, const Operation& operation) {
  switch (static_cast<Op>(number)) {
    case Op::kSequence: {
      SlotReply slot = {.session_id = reader_.fixed(kSessionIdBytes),
                        .sequence = reader_.u32(),
                        .slot = reader_.u32(),
                        .highest_slot = reader_.u32(),
                        .target_highest_slot = reader_.u32(),
                        .status_flags = reader_.u32()};
      if (reader_.good() && reply_.walked == 0) reply_.slot = slot;
      break;
    }
    case Op::kRead:
      reader_.u32();  // the end of the file
      read_payload();
      break;
    case Op::kReadPlus:
      read_read_plus();
      break;
    case Op::kReadDir: {
      const std::size_t before = reader_.position();
      walk(reader_, operation.results);
      reply_.returned += reader_.position() - before;
      break;
    }
    case Op::kGetAttr:
      if (!reply_.lease_seconds) reply_.lease_seconds = read_lease(reader_);
      walk(reader_, operation.results);
      break;
    case Op::kCopy:
      read_copy(operation);
      break;
    case Op::kCreateSession:
      read_session(operation);
      break;
    default:
      walk(reader_, operation.results);
  }
}

// Data of a file; it counts even if it has not arrived yet.
void ReplyWalk::read_payload() {
  const std::uint32_t length = reader_.payload();
  reply_.returned += length;
  if (reader_.state() != XdrState::kMissing || length == 0) return;
  known_ = reply_.returned;
  behind_ = reader_.left() - length;
}

void ReplyWalk::read_read_plus() {
  reader_.u32();  // the end of the file
  const std::uint32_t segments = reader_.u32();
  for (std::uint32_t i = 0; i < segments && reader_.good(); ++i) {
    const std::uint32_t content = reader_.u32();
    reader_.skip(8);
    if (content == 0) {
      read_payload();
    } else if (content == 1) {
      reader_.skip(8);  // a hole
    } else {
      reader_.fail(XdrState::kUnknown);
    }
  }
}

void ReplyWalk::read_copy(const Operation& operation) {
  XdrReader fields = reader_;
  const std::uint32_t callbacks = fields.u32();
  const std::uint64_t count = fields.u64();
  walk(reader_, operation.results);
  // With a callback id the copy continues after the reply.
  if (reader_.good() && callbacks == 0) reply_.copied = count;
}

void ReplyWalk::read_session(const Operation& operation) {
  XdrReader fields = reader_;
  CreatedSession session;
  session.session_id = fields.fixed(kSessionIdBytes);
  fields.skip(8 + 20);
  session.slots = fields.u32();
  walk(fields, "[4]20");
  session.callback_slots = fields.u32();
  walk(reader_, operation.results);
  if (reader_.good()) reply_.session = session;
}

}  // namespace

std::string_view describe(WalkEnd end) {
  constexpr std::array<std::string_view, kWalkEnds> kTexts = {
      "the end of the message",      "arguments past the end of the message",
      "bytes that have not arrived", "arguments of an unknown form",
      "an unknown operation",        "too many operations",
      "too many bytes of arguments", "bytes behind the last operation",
  };
  return kTexts[static_cast<std::size_t>(end)];
}

WalkEnd walk_end(const XdrReader& reader) {
  switch (reader.state()) {
    case XdrState::kShort:
      return WalkEnd::kShort;
    case XdrState::kMissing:
      return WalkEnd::kMissing;
    case XdrState::kUnknown:
      return WalkEnd::kUnknownForm;
    case XdrState::kBound:
      return WalkEnd::kTooManyBytes;
    case XdrState::kGood:
      break;
  }
  return reader.left() == 0 ? WalkEnd::kEnd : WalkEnd::kTrailingBytes;
}

CompoundCall read_compound(XdrReader arguments, const CostModel& model) {
  CompoundCall call;
  CallWalk(arguments, model, call).run();
  return call;
}

CompoundReply read_compound_reply(XdrReader results) {
  CompoundReply reply;
  ReplyWalk(results, reply).run();
  return reply;
}

}  // namespace weir::nfs
