// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_streams_grpc.h"

namespace weir::cluster {

// ---- the leader's end ----

PeerStream::PeerStream(grpc::CallbackServerContext& context, Letters& letters, const Events& events)
    : context_(context), letters_(letters), events_(events) {
  StartRead(&incoming_);  // starts when gRPC owns the stream
  tell(letters_, [this] { events_.came(*this); });
}

void PeerStream::read_done(bool is_ok) {
  if (!is_ok) {  // the peer disconnected, or the call was cancelled
    if (!is_finishing_) events_.ended(*this);
    return finish(grpc::Status::OK);
  }
  if (!is_finishing_) events_.frame(*this, incoming_);
  if (!is_finishing_) StartRead(&incoming_);
}

void PeerStream::written(bool is_ok) {
  outgoing_.end();
  if (is_finishing_) return finish_now();
  if (is_ok) write();
}

void PeerStream::write() {
  const Frame* const next = outgoing_.next();
  if (next == nullptr || is_finishing_) return;
  outgoing_.begin();
  StartWrite(next);
}

void PeerStream::send(Frame frame) {
  if (is_finishing_) return;
  if (outgoing_.push(std::move(frame))) return write();
  context_.TryCancel();
}

void PeerStream::finish(const grpc::Status& status) {
  if (std::exchange(is_finishing_, true)) return;
  last_words_ = status;
  if (!outgoing_.is_writing()) finish_now();
}

// The last operation: gRPC ends the stream when the operations in progress have ended too.
void PeerStream::finish_now() {
  if (!last_words_) return;
  Finish(*std::exchange(last_words_, std::nullopt));
}

// ---- the member's end ----

// The hold keeps the stream open while this side may still start to read or write.
LinkStream::LinkStream(Epochs::Stub& stub, Letters& letters, const Hello& hello,
                       const Events& events)
    : letters_(letters), events_(events) {
  stub.async()->Join(&context_, this);
  AddHold();
  StartRead(&incoming_);
  Frame first;
  *first.mutable_hello() = hello;
  outgoing_.push(std::move(first));
  write();
  StartCall();
}

void LinkStream::read_done(bool is_ok) {
  if (is_ok) {
    events_.frame(*this, incoming_);
    return StartRead(&incoming_);
  }
  is_finishing_ = true;
  RemoveHold();
}

void LinkStream::written(bool is_ok) {
  outgoing_.end();
  if (is_ok) write();
}

void LinkStream::write() {
  const Frame* const next = outgoing_.next();
  if (next == nullptr || is_finishing_) return;
  outgoing_.begin();
  StartWrite(next);
}

void LinkStream::send(Frame frame) {
  if (outgoing_.push(std::move(frame))) return write();
  context_.TryCancel();
}

}  // namespace weir::cluster
