// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a stream between a member and its leader: gRPC's callbacks turned into a few
// events on one thread.
//
//   PeerStream   the leader's end    came -> frames ... -> ended -> over
//   LinkStream   the member's end    frames ... -> ended, with the reason; then it is over
//
// gRPC calls a stream in its own threads. There the next frame of its queue is written, and a frame
// that has been read is offered to the owner, who may take it at once: that saves a change of
// threads, which costs more than most frames. Otherwise letters are put into the owner's mailbox,
// at most one for a read and one for the end. Everything else happens on the thread that reads it.
// A stream may be destroyed when it is over, since that letter is the last. It exposes gRPC types,
// so it is private to this module and not installed.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include <absl/base/thread_annotations.h>
#include <grpcpp/grpcpp.h>

#include "weir/base/assert.h"
#include "weir/base/time.h"
#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/coordinate/round_payload.h"
#include "weir/host/mailbox.h"
#include "weir/host/mutex.h"

namespace weir::cluster {

using Letters = host::Mailbox<std::function<void()>>;

// For gRPC's callbacks. They own nothing, and above all no stub: gRPC frees a channel's queue with
// the last channel, and must not do so in the thread that reads this queue.
// REQUIRES: the mailbox outlives all streams and calls, so it is open.
inline void tell(Letters& letters, std::function<void()> letter) {
  const bool is_put = letters.put_always(std::move(letter));
  WEIR_ASSERT(is_put);
}

// Outgoing frames, written one at a time: by the owner's thread if none is being written, otherwise
// by gRPC's thread when the one before has been written, so that the owner need not wake for that.
class FrameQueue {
 public:
  // A peer that does not read this many frames is dead or hostile.
  static constexpr std::size_t kFramesMax = 64;

  struct Pushed {
    bool is_full = false;         // too many frames wait, and this one was dropped
    const Frame* next = nullptr;  // to be written now
  };
  Pushed push(Frame frame) {
    const host::MutexLock lock(mutex_);
    if (is_broken_) return {};
    if (frames_.size() >= kFramesMax) return {.is_full = true, .next = nullptr};
    frames_.push_back(std::move(frame));
    return {.is_full = false, .next = begin()};
  }
  struct Written {
    bool is_stopped = false;
    const Frame* next = nullptr;  // to be written now
  };
  // The frame has been written, or could not be: then no others are.
  Written written(bool is_ok) {
    const host::MutexLock lock(mutex_);
    is_writing_ = false;
    is_broken_ = is_broken_ || !is_ok;
    frames_.pop_front();
    return {.is_stopped = is_stopped_, .next = begin()};
  }
  // No frame is begun any more. Whether one is being written: written() is called after this.
  bool stop() {
    const host::MutexLock lock(mutex_);
    is_stopped_ = true;
    return is_writing_;
  }

 private:
  const Frame* begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (is_writing_ || is_stopped_ || is_broken_ || frames_.empty()) return nullptr;
    is_writing_ = true;
    return &frames_.front();
  }

  host::Mutex mutex_;
  std::deque<Frame> frames_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_broken_ ABSL_GUARDED_BY(mutex_) = false;
};

class PeerStream : public grpc::ServerBidiReactor<Frame, Frame> {
 public:
  struct Events {
    // In gRPC's thread: calls read_done() if this can be done now.
    std::function<bool(PeerStream&)> at_once;
    std::function<void(PeerStream&)> came;
    std::function<void(PeerStream&, const Frame&)> frame;
    std::function<void(PeerStream&)> ended;
    std::function<void(PeerStream&)> over;
  };

  // Called in gRPC's thread. The first letter passes the stream to its owner.
  PeerStream(grpc::CallbackServerContext& context, Letters& letters, const Events& events);
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  void send(Frame frame);
  // Closes it with this status for the peer.
  void finish(const grpc::Status& status);
  void read_done(bool is_ok);

  // After its hello, at most one of the two: a member at its leader, or below its relay.
  MemberId member = 0;
  MemberId child = 0;
  Instant hello_by{};  // deadline of the hello

 private:
  void OnReadDone(bool is_ok) override {
    if (is_ok && events_.at_once(*this)) return;
    tell(letters_, [this, is_ok] { read_done(is_ok); });
  }
  void OnWriteDone(bool is_ok) override;
  void OnDone() override {
    tell(letters_, [this] { events_.over(*this); });
  }

  grpc::CallbackServerContext& context_;
  Letters& letters_;
  const Events& events_;
  Frame incoming_;
  FrameQueue outgoing_;
  grpc::Status last_words_;  // once the queue is stopped
  bool is_finishing_ = false;
};

class LinkStream : public grpc::ClientBidiReactor<Frame, Frame> {
 public:
  struct Events {
    // In gRPC's thread: calls read_done() if this can be done now. May be none.
    std::function<bool(LinkStream&, const Frame&)> at_once;
    std::function<void(LinkStream&, const Frame&)> frame;
    // The stream is over after this call.
    std::function<void(LinkStream&, const grpc::Status&)> ended;
  };

  LinkStream(Epochs::Stub& stub, Letters& letters, const Hello& hello, const Events& events);
  LinkStream(const LinkStream&) = delete;
  LinkStream& operator=(const LinkStream&) = delete;

  void send(Frame frame);
  void close() { context_.TryCancel(); }
  void read_done(bool is_ok);

  bool is_joined = false;

 private:
  void OnReadDone(bool is_ok) override {
    if (is_ok && events_.at_once && events_.at_once(*this, incoming_)) return;
    tell(letters_, [this, is_ok] { read_done(is_ok); });
  }
  void OnWriteDone(bool is_ok) override;
  void OnDone(const grpc::Status& status) override {
    tell(letters_, [this, status] { events_.ended(*this, status); });
  }

  Letters& letters_;
  const Events& events_;
  grpc::ClientContext context_;
  Frame incoming_;
  FrameQueue outgoing_;
};

}  // namespace weir::cluster
