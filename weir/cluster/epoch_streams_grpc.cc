// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_streams_grpc.h"

namespace weir::cluster {

// ---- the leader's end ----

PeerStream::PeerStream(Epochs::AsyncService& service, grpc::ServerCompletionQueue& queue,
                       const Events& events)
    : events_(events), stream_(&context_) {
  accepted_.done = [this](bool is_ok) {
    --pending_;
    if (!is_ok) {  // the server ends
      has_ended_ = true;
      return;
    }
    read();
    events_.accepted(*this);
  };
  read_.done = [this](bool is_ok) {
    --pending_;
    if (!is_ok) return end();
    if (!is_finishing_) events_.frame(*this, incoming_);
    if (!is_finishing_) read();
  };
  written_.done = [this](bool is_ok) {
    --pending_;
    outgoing_.end();
    if (is_finishing_) return finish_now();
    if (is_ok) write();
  };
  finished_.done = [this](bool) {
    --pending_;
    has_ended_ = true;
  };
  service.RequestJoin(&context_, &stream_, &queue, &queue, &begin(accepted_));
}

void PeerStream::read() { stream_.Read(&incoming_, &begin(read_)); }

void PeerStream::write() {
  const Frame* const next = outgoing_.next();
  if (next == nullptr || is_finishing_) return;
  outgoing_.begin();
  stream_.Write(*next, &begin(written_));
}

void PeerStream::send(Frame frame) {
  if (is_finishing_) return;
  if (outgoing_.push(std::move(frame))) return write();
  context_.TryCancel();
}

// The peer has gone, or the call was cancelled.
void PeerStream::end() {
  if (!is_finishing_) events_.ended(*this);
  finish(grpc::Status::OK);
}

void PeerStream::finish(const grpc::Status& status) {
  if (std::exchange(is_finishing_, true)) return;
  last_words_ = status;
  if (!outgoing_.is_writing()) finish_now();
}

void PeerStream::finish_now() {
  if (!last_words_) return;
  const grpc::Status status = *std::exchange(last_words_, std::nullopt);
  stream_.Finish(status, &begin(finished_));
}

// ---- the member's end ----

LinkStream::LinkStream(Epochs::Stub& stub, grpc::CompletionQueue& queue, const Hello& hello,
                       const Events& events)
    : events_(events), stream_(stub.PrepareAsyncJoin(&context_, &queue)) {
  opened_.done = [this](bool is_ok) {
    --pending_;
    if (!is_ok) return finish();
    is_open_ = true;
    write();
    read();
  };
  read_.done = [this](bool is_ok) {
    --pending_;
    if (!is_ok) return finish();
    events_.frame(*this, incoming_);
    read();
  };
  written_.done = [this](bool is_ok) {
    --pending_;
    outgoing_.end();
    if (is_ok) write();
  };
  finished_.done = [this](bool) {
    --pending_;
    has_ended_ = true;
    events_.ended(*this, status_);
  };
  Frame first;
  *first.mutable_hello() = hello;
  outgoing_.push(std::move(first));
  stream_->StartCall(&begin(opened_));
}

void LinkStream::read() { stream_->Read(&incoming_, &begin(read_)); }

void LinkStream::write() {
  const Frame* const next = outgoing_.next();
  if (next == nullptr || !is_open_ || is_finishing_) return;
  outgoing_.begin();
  stream_->Write(*next, &begin(written_));
}

void LinkStream::send(Frame frame) {
  if (outgoing_.push(std::move(frame))) return write();
  context_.TryCancel();
}

void LinkStream::finish() {
  if (std::exchange(is_finishing_, true)) return;
  stream_->Finish(&status_, &begin(finished_));
}

}  // namespace weir::cluster
