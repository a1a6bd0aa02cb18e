// SPDX-License-Identifier: Apache-2.0
//
// The part of a connection that receives bytes and passes requests on to their Target.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "weir/serve/connection.h"
#include "weir/serve/dispatcher.h"
#include "weir/serve/send_directly.h"
#include "weir/serve/session_check.h"

namespace weir::serve {
namespace {

// From this size on the rest of a payload is received directly into its buffer.
constexpr std::uint32_t kDirectMin = 16384;
// Maximum received at once: the kernel copies it during the turn, up to 6 MiB by default.
constexpr std::uint32_t kReceiveMax = 1U << 19;

// Maximum of unsent answers in the handshake.
constexpr std::size_t kAnswersMax = std::size_t{1} << 13;

}  // namespace

void Connection::receive() {
  if (receive_.is_pending || !rest_.empty() || lacks_memory_ || is_shaking_tls_) return;
  if (state_ != State::kOpen && state_ != State::kHandshake) return;
  // A client that does not read its answers gets no more.
  if (state_ == State::kHandshake && !(greeting_->out.empty() && greeting_->sending.empty()))
    return;
  if (state_ == State::kHandshake && tls_ != nullptr && tls_->has_output()) return;
  if (upstream_ != nullptr && !session_->takes_from_client()) return;  // until it is sent
  if (writing_ == nullptr && !has_room_for_request()) return wait_for_room();
  receive_.is_pending = true;
  const std::uint32_t left = writing_ != nullptr ? payload_left_ : 0;
  is_direct_ = left >= kDirectMin && tls_ == nullptr;
  polls_ = upstream_ != nullptr && session_->streamed_from_client() >= kSendDirectlyMin;
  if (polls_) {
    context_.io->poll_data(socket_.get(), receive_);
  } else if (is_direct_) {
    const std::uint64_t have = writing_->length - left;
    const std::uint32_t bytes = std::min(left, kReceiveMax);
    context_.io->receive_into(socket_.get(), {writing_->buffer.data() + have, bytes}, receive_);
  } else {
    context_.io->receive(socket_.get(), receive_);
  }
}

void Connection::received(host::Operation& io, const host::Completion& completion) {
  auto& mine = static_cast<Io&>(io);
  Connection& self = *mine.connection;
  mine.is_pending = false;
  const bool reads = self.state_ == State::kOpen || self.state_ == State::kHandshake;
  if (!reads) {  // the connection has ended meanwhile
    self.context_.io->give_back(completion);
    if (self.writing_ != nullptr) self.release(self.end_payload());
    self.settle();
    return;
  }
  if (completion.result == -ENOBUFS || completion.result == -EINTR) return self.receive();
  const bool is_counted = std::exchange(self.is_counted_, false);
  if (is_counted && completion.result == -ECANCELED) return self.judge_payload();
  if (completion.result <= 0) return self.close();
  if (self.polls_) return self.receive_streamed();
  if (self.is_direct_) {
    self.payload_left_ -= static_cast<std::uint32_t>(completion.result);
    if (self.payload_left_ == 0) {
      self.admit(self.end_payload());
    } else if (is_counted) {
      return self.judge_payload();
    }
    self.receive();
    return;
  }
  self.feed(self.context_.io->received(completion));
  self.context_.io->give_back(completion);
  self.receive();
}

void Connection::feed(Input in) { tls_ != nullptr ? decrypt(in) : use(in); }

// Uses received bytes.
void Connection::use(Input in) {
  if (state_ == State::kHandshake && rest_.empty()) {
    const bool was_plain = tls_ == nullptr;
    shake(in);
    if (was_plain && tls_ != nullptr) return decrypt(in);
  }
  if (state_ == State::kOpen && rest_.empty()) read_requests(in);
  if (state_ == State::kOpen || state_ == State::kHandshake) {
    rest_.insert(rest_.end(), in.begin(), in.end());
  }
}

void Connection::shake(Input& in) {
  using Step = Session::Step;
  while (state_ == State::kHandshake && greeting_->out.size() < kAnswersMax) {
    const Step step = session_->negotiate(in, greeting_->out);
    if (state_ == State::kClosed) return;  // a gateway could not connect to its server
    if (step == Step::kNeedBytes) {
      if (!in.empty()) fault("asked for more bytes without consuming all it had");
      break;
    }
    if (step == Step::kStartTls) return begin_tls();
    if (step == Step::kBreak) broken();
    if (step == Step::kEnd) state_ = State::kEnding;
    if (step == Step::kOpen) state_ = State::kOpen;
  }
  if (greeting_ == nullptr) return;
  if (!greeting_->out.empty()) return mark_dirty();
  // No greeting was needed, so nothing precedes the replies.
  if (state_ == State::kOpen && greeting_->sending.empty()) greeting_.reset();
}

// The client has read its answers.
void Connection::go_on_shaking() {
  if (state_ != State::kHandshake || !greeting_->out.empty() || !greeting_->sending.empty()) return;
  if (is_shaking_tls_) return;
  if (tls_ != nullptr && (!tls_->is_open() || tls_->has_output())) return;
  const std::vector<std::byte> had = std::exchange(rest_, {});
  use(had);
}

// Uses as much as possible; the rest of `in` has to wait.
void Connection::read_requests(Input& in) {
  const std::uint32_t most = context_.intake.allowance();
  const std::uint64_t before = began_;
  bool is_charged = false;  // the next request, if it is not free
  while (state_ == State::kOpen) {
    if (lacks_memory_ && !give_payload_memory()) break;
    if (writing_ != nullptr) {
      if (in.empty()) break;
      take_payload(in);
      continue;
    }
    if (!has_room_for_request()) {
      if (!in.empty()) wait_for_room();
      break;
    }
    if (began_ - before == most && !in.empty()) {
      is_in_line_ = true;
      context_.intake.wait(*this);
      break;
    }
    // Charged before it exists: other loops may take what was free a moment ago.
    if (!is_charged && unanswered_ >= kRequestsFree) {
      is_charged = context_.pool.charge(memory_, sizeof(PendingRequest));
      if (!is_charged) {
        if (!in.empty()) mark_waiting();
        break;
      }
    }
    const std::uint64_t last = began_;
    const bool goes_on = take_event(in);
    if (began_ != last) is_charged = false;  // the charge now belongs to the request
    if (!goes_on) break;
  }
  if (is_charged) context_.pool.discharge(memory_, sizeof(PendingRequest));
  context_.intake.took(static_cast<std::uint32_t>(began_ - before));
}

// False if nothing more can be used of the received bytes.
bool Connection::take_event(Input& in) {
  using Event = Session::Event;
  PendingRequest& spare = context_.requests.spare();
  spare.clear();
  switch (session_->next(in, spare)) {
    case Event::kNeedBytes:
      if (!in.empty()) fault("asked for more bytes without consuming all it had");
      return false;
    case Event::kRequest:
      return begin_request(new_request());
    case Event::kRefused:
      ++context_.counters.requests_refused;
      reply(new_request());
      return true;
    case Event::kEnd:
      end();
      return false;
    case Event::kBreak:
      broken();
      return false;
    case Event::kNoRoom:
      mark_waiting();
      return false;
  }
  return false;
}

bool Connection::begin_request(PendingRequest& request) {
  ++context_.counters.requests;
  if (find_fault(request) != RequestFault::kNone) [[unlikely]] {
    const std::string wrong = request_fault(request);
    release(request);
    fault(wrong);
    return false;
  }
  if (request.is_own || request.command != StoreCommand::kWrite) {
    admit(request);
    return true;
  }
  writing_ = &request;
  payload_left_ = static_cast<std::uint32_t>(request.length);
  return give_payload_memory();
}

bool Connection::has_room_for_request() const {
  if (unanswered_ >= context_.server.connection_requests) return false;
  return unanswered_ < kRequestsFree || context_.pool.has_room(memory_, sizeof(PendingRequest));
}

void Connection::admit(PendingRequest& request) {
  if (request.is_exempt) {
    dispatcher_of(request).with(context_, [&](Instant now) {
      served_by(request).service->target.charge(request, Head::kRegular, now);
    });
    return run_unless_hung(request);
  }
  queued_.push_back(request);
  dispatcher_of(request).admit(context_, request);
}

void Connection::go_on_reading() {
  is_in_line_ = false;
  use_rest();
}

void Connection::use_rest() {
  const std::vector<std::byte> had = std::exchange(rest_, {});
  use(had);
  receive();
}

void Connection::resume() {
  is_waiting_ = false;
  while (state_ != State::kClosed && !parked_.empty()) {
    PendingRequest& request = parked_.front();
    if (!take_reply_memory(request)) return wait_for_room();
    is_wait_counted_ = false;
    parked_.erase(request);
    resume(request);
  }
  if (state_ != State::kOpen) return;
  if (lacks_memory_ && !give_payload_memory()) return;
  if (writing_ == nullptr && !has_room_for_request()) return wait_for_room();
  is_wait_counted_ = false;
  if (!is_in_line_) use_rest();
}

}  // namespace weir::serve
