// SPDX-License-Identifier: Apache-2.0
//
// Reads a trace (trace.h) record by record, from any source of bytes. The bytes are not trusted: a
// block is accepted only if its checksum is correct, and a record only if it is complete and every
// number in it is one that a writer could have written. So records can be passed to a Target,
// except that the calls may still contradict each other (a request that is completed twice), which
// the caller has to check.
//
//   TraceReader reader(source);
//   while (const TraceRecord* record = reader.next()) ...
//   reader.ending()       why there are no more
//
// Memory: a block, the attributes that can be referred to, and the state that a restart or an epoch
// sets at once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/command.h"
#include "weir/schedule/request.h"
#include "weir/target/trace.h"

namespace weir {

// The fields of its kind are set; texts and attributes are valid until the next record is read.
struct TraceRecord {
  TraceKind kind = TraceKind::kEnd;
  bool flag = false;
  std::uint32_t target = 0;
  Instant now;
  std::uint64_t request = 0;  // its number
  std::uint64_t number = 0;   // seed, nodes, quantum, sum
  Bytes bytes;
  Instant until;
  Outcome outcome;  // of kComplete
  const Attributes* attributes = nullptr;
  std::string_view text;  // build, name of a policy, rule, job
  std::string_view argument;
  Heads heads = Heads::kBoth;
  Head head = Head::kRegular;
  std::optional<Rate> rate;
  std::optional<CapacitySource> source;
  const TraceTarget* made = nullptr;         // of kTarget
  std::optional<std::uint32_t> group;        // of kPrefer
  const Controller::State* state = nullptr;  // of kRestore
  std::span<const ClassSlice> slices;        // of kSlices
};

class TraceReader {
 public:
  // Fills the span, or less at the end of the file.
  using Source = std::function<Result<std::size_t>(std::span<char>)>;

  enum class Ending : std::uint8_t {
    kNotYet,
    kWhole,    // kEnd was read
    kEarly,    // kEnd was read; the writer stopped early
    kCut,      // the file ends without kEnd, or in the middle of a block
    kDamaged,  // a checksum is wrong, or records are not valid
    kForeign,  // not a trace, or of another version
    kUnread,   // the file cannot be read
  };

  explicit TraceReader(Source source) : source_(std::move(source)) {}

  // nullptr when there are no more.
  const TraceRecord* next();

  Ending ending() const { return ending_; }
  // The reason, for all except kWhole.
  const std::string& complaint() const { return complaint_; }
  // Where the last intact block ends.
  std::uint64_t good_bytes() const { return good_bytes_; }

 private:
  bool read_block();
  const TraceRecord* end(Ending ending, std::string_view complaint);
  bool read_record();
  bool read_body();
  bool read_command();
  bool read_target();
  bool read_options(Target::Options& options);
  bool read_groups(std::vector<NidList>& groups);
  bool read_slots(Target::Options& options);
  bool read_levels(std::vector<FieldSet>& levels);
  bool read_controller(ControllerOptions& controller);
  bool read_attributes();
  bool read_fields(Attributes& one);
  bool read_account();
  bool read_state(Allocator::State& state);
  bool read_node();
  bool read_slice();
  bool get_signed(std::int64_t& number);
  bool get_tokens(Tokens& tokens);
  bool read_request();
  bool read_described();
  bool read_outcome();
  bool get_byte(std::uint8_t& byte, std::uint8_t most);
  bool get_flag(bool& flag);
  bool get(std::uint64_t& number, std::uint64_t most = UINT64_MAX);
  template <class T>
  bool get_as(T& number, std::uint64_t most = static_cast<T>(~T{0}));
  bool get_time(Nanoseconds& time, Nanoseconds least, Nanoseconds most);
  bool get_fixed(std::uint64_t& number);
  bool get_text(std::string_view& text, std::size_t most = kTraceTextMax);
  bool get_rate(std::optional<Rate>& rate);

  Source source_;
  std::string block_;
  std::size_t at_ = 0;  // in the block
  std::uint64_t sum_ = 0;
  std::uint64_t good_bytes_ = 0;
  Instant now_;
  std::uint32_t chosen_ = 0;
  std::uint32_t targets_ = 0;
  std::uint64_t admitted_ = 0;
  bool has_head_ = false;
  std::vector<Attributes> attributes_;
  TraceTarget made_;
  std::vector<Ledger::Account> accounts_;          // for the next kRestore
  std::vector<TreeAllocator::State::Node> nodes_;  // the same
  std::size_t node_accounts_ = 0;                  // of all of them
  Controller::State state_;
  std::deque<std::string> slice_names_;  // referred to by slices_
  std::vector<ClassSlice> slices_;       // for the next kSlices
  bool are_slices_told_ = false;
  TraceRecord record_;
  Ending ending_ = Ending::kNotYet;
  std::string complaint_;
};

}  // namespace weir
