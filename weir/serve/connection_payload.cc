// SPDX-License-Identifier: Apache-2.0
//
// The part of a connection that collects the payload of a write, and disconnects clients that
// announce one and do not send it.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "weir/base/units.h"
#include "weir/serve/connection.h"

namespace weir::serve {

bool Connection::give_payload_memory() {
  writing_->buffer = context_.pool.take(memory_, writing_->length);
  lacks_memory_ = !writing_->buffer;
  if (lacks_memory_) {
    note_starved(writing_->length);
    mark_waiting();
  } else if (writing_->buffer.size() > BufferPool::kGuaranteed) {
    context_.payloads.push_back(payload_);
    mark_payload();
  }
  return !lacks_memory_;
}

void Connection::take_payload(Input& in) {
  const std::size_t bytes = std::min<std::size_t>(payload_left_, in.size());
  std::memcpy(writing_->buffer.data() + (writing_->length - payload_left_), in.data(), bytes);
  in = in.subspan(bytes);
  payload_left_ -= static_cast<std::uint32_t>(bytes);
  if (payload_left_ == 0) admit(end_payload());
}

void Connection::note_starved(std::size_t bytes) {
  context_.is_starved = context_.is_starved || context_.pool.is_refused_by_others(memory_, bytes);
}

void Connection::mark_payload() {
  payload_.marked = context_.now;
  payload_.left = payload_left_;
}

PendingRequest& Connection::end_payload() {
  if (payload_.link.is_linked()) context_.payloads.erase(payload_);
  return *std::exchange(writing_, nullptr);
}

// The IoLoop reports a large receive only when it is complete. So a long receive is cancelled,
// which shows how much has arrived.
void Connection::check_payload() {
  context_.payloads.erase(payload_);
  context_.payloads.push_back(payload_);
  if (state_ == State::kOpen && !(receive_.is_pending && is_direct_)) return judge_payload();
  payload_.marked = context_.now;  // it is checked when the result arrives
  is_counted_ = true;
  context_.io->cancel(receive_);
}

void Connection::judge_payload() {
  const std::uint32_t left = payload_left_;
  if (payload_.left - left >= kPayloadMin) {
    mark_payload();
    return receive();
  }
  ++context_.counters.stalled;
  context_.log.note(
      EventLog::Kind::kTimeout,
      fmt::format("{}: disconnected: other clients wait for memory, and of a write of {} bytes "
                  "the client has sent {}, {} of them in the last {}",
                  print_nid(identity_.nid), writing_->length, writing_->length - left,
                  payload_.left - left, print_duration(kPayloadTime)),
      context_.now);
  close();
}

}  // namespace weir::serve
