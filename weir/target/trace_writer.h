// SPDX-License-Identifier: Apache-2.0
//
// Turns calls to Targets into the bytes of a trace (trace.h describes the format). It writes no
// file: complete blocks are passed to a sink, in order.
//
//   TraceWriter writer({.build = "weir 1.0", .seed = 7}, [&](std::string block) { ... });
//   target.record(&writer.add_target({"ost_io", options, {}, now}));   before its first call
//   ...
//   writer.flush();         writes a block, even if it is small
//   writer.end(false);      writes the last one
//
// A call costs about 20 ns and allocates only for a new block and for new attributes. The sink may
// call stop(): then nothing more is written, at no cost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/target/recorder.h"
#include "weir/target/trace.h"

namespace weir {

class TraceWriter {
 public:
  using Sink = std::function<void(std::string block)>;

  TraceWriter(const TraceHead& head, Sink sink);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Lives as long as the writer. REQUIRES: the Target has just been created.
  TargetRecorder& add_target(const TraceTarget& target);

  void flush();
  void end(bool is_early);
  void stop() { is_over_ = true; }

  // Whether flush() would write a block.
  bool has_some() const { return !records_.empty() && !is_over_; }

 private:
  class Channel;

  void begin(TraceKind kind, bool flag, Instant now);
  void begin_for(std::uint32_t target, TraceKind kind, bool flag, Instant now);
  void finish() {
    if (records_.size() >= kTraceBlockBytes) flush();
  }
  void put_byte(std::uint8_t byte) { records_.push_back(static_cast<char>(byte)); }
  void put(std::uint64_t number);
  void put_fixed(std::uint64_t number);
  void put_text(std::string_view text);
  void put_rate(const std::optional<Rate>& rate);
  template <class T, class Get>
  void put_optional(const std::optional<T>& value, Get get);
  void put_options(const Target::Options& options);
  void put_attributes(const Attributes& attributes);
  void put_fields(const Attributes& attributes);
  void put_account(const Ledger::Account& account);
  void put_state(const Allocator::State& state);
  std::uint32_t place_of(const Attributes& attributes);

  Sink sink_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::string records_;  // of the block that is being filled
  std::uint64_t sum_ = 0;
  std::uint32_t chosen_ = 0;
  Instant now_;
  std::uint64_t admitted_ = 0;
  absl::flat_hash_map<Attributes, std::uint32_t, std::hash<Attributes>> places_;
  bool is_begun_ = false;
  bool is_over_ = false;
};

}  // namespace weir
