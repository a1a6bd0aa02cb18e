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

void PeerStream::OnWriteDone(bool is_ok) {
  const auto [is_stopped, next] = outgoing_.written(is_ok);
  if (is_stopped) return Finish(last_words_);
  if (next != nullptr) StartWrite(next);
}

void PeerStream::send(Frame frame) {
  if (is_finishing_) return;
  const auto [is_full, next] = outgoing_.push(std::move(frame));
  if (is_full) context_.TryCancel();
  if (next != nullptr) StartWrite(next);
}

// The last operation: gRPC ends the stream when the operations in progress have ended too.
void PeerStream::finish(const grpc::Status& status) {
  if (std::exchange(is_finishing_, true)) return;
  last_words_ = status;
  if (!outgoing_.stop()) Finish(last_words_);
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
  send(std::move(first));
  StartCall();
}

void LinkStream::read_done(bool is_ok) {
  if (is_ok) {
    events_.frame(*this, incoming_);
    return StartRead(&incoming_);
  }
  (void)outgoing_.stop();
  RemoveHold();
}

void LinkStream::OnWriteDone(bool is_ok) {
  if (const Frame* const next = outgoing_.written(is_ok).next; next != nullptr) StartWrite(next);
}

void LinkStream::send(Frame frame) {
  const auto [is_full, next] = outgoing_.push(std::move(frame));
  if (is_full) context_.TryCancel();
  if (next != nullptr) StartWrite(next);
}

}  // namespace weir::cluster
