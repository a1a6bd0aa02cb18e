// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a stream between a member and its leader: gRPC's callbacks turned into a few
// events on one thread.
//
//   PeerStream   the leader's end    came -> frames ... -> ended -> over
//   LinkStream   the member's end    frames ... -> ended, with the reason; then it is over
//
// gRPC calls a stream in its own threads, where it only writes a letter to the owner's mailbox: at
// most one for a read, one for a write and one for the end are in progress. Everything else happens
// on the thread that reads the mailbox. A stream may be destroyed when it is over, since that
// letter is the last. It exposes gRPC types, so it is private to this module and not installed.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "weir/base/assert.h"
#include "weir/base/time.h"
#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/coordinate/round_payload.h"
#include "weir/host/mailbox.h"

namespace weir::cluster {

using Letters = host::Mailbox<std::function<void()>>;

// For gRPC's callbacks. They own nothing, and above all no stub: gRPC frees a channel's queue with
// the last channel, and must not do so in the thread that reads this queue.
// REQUIRES: the mailbox outlives all streams and calls, so it is open.
inline void tell(Letters& letters, std::function<void()> letter) {
  const bool is_put = letters.put_always(std::move(letter));
  WEIR_ASSERT(is_put);
}

// Outgoing frames, written one at a time.
class FrameQueue {
 public:
  // A peer that does not read this many frames is dead or hostile.
  static constexpr std::size_t kFramesMax = 64;

  // False: too many frames wait, and this one was dropped.
  bool push(Frame frame) {
    if (frames_.size() >= kFramesMax) return false;
    frames_.push_back(std::move(frame));
    return true;
  }
  // The next frame to write, if none is being written.
  const Frame* next() const { return is_writing_ || frames_.empty() ? nullptr : &frames_.front(); }
  void begin() { is_writing_ = true; }
  void end() {
    is_writing_ = false;
    frames_.pop_front();
  }
  bool is_writing() const { return is_writing_; }

 private:
  std::deque<Frame> frames_;
  bool is_writing_ = false;
};

class PeerStream : public grpc::ServerBidiReactor<Frame, Frame> {
 public:
  struct Events {
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

  // After its hello, at most one of the two: a member at its leader, or below its relay.
  MemberId member = 0;
  MemberId child = 0;
  Instant hello_by{};  // deadline of the hello

 private:
  void OnReadDone(bool is_ok) override {
    tell(letters_, [this, is_ok] { read_done(is_ok); });
  }
  void OnWriteDone(bool is_ok) override {
    tell(letters_, [this, is_ok] { written(is_ok); });
  }
  void OnDone() override {
    tell(letters_, [this] { events_.over(*this); });
  }

  void read_done(bool is_ok);
  void written(bool is_ok);
  void write();
  void finish_now();

  grpc::CallbackServerContext& context_;
  Letters& letters_;
  const Events& events_;
  Frame incoming_;
  FrameQueue outgoing_;
  std::optional<grpc::Status> last_words_;
  bool is_finishing_ = false;
};

class LinkStream : public grpc::ClientBidiReactor<Frame, Frame> {
 public:
  struct Events {
    std::function<void(LinkStream&, const Frame&)> frame;
    // The stream is over after this call.
    std::function<void(LinkStream&, const grpc::Status&)> ended;
  };

  LinkStream(Epochs::Stub& stub, Letters& letters, const Hello& hello, const Events& events);
  LinkStream(const LinkStream&) = delete;
  LinkStream& operator=(const LinkStream&) = delete;

  void send(Frame frame);
  void close() { context_.TryCancel(); }

  bool is_joined = false;

 private:
  void OnReadDone(bool is_ok) override {
    tell(letters_, [this, is_ok] { read_done(is_ok); });
  }
  void OnWriteDone(bool is_ok) override {
    tell(letters_, [this, is_ok] { written(is_ok); });
  }
  void OnDone(const grpc::Status& status) override {
    tell(letters_, [this, status] { events_.ended(*this, status); });
  }

  void read_done(bool is_ok);
  void written(bool is_ok);
  void write();

  Letters& letters_;
  const Events& events_;
  grpc::ClientContext context_;
  Frame incoming_;
  FrameQueue outgoing_;
  bool is_finishing_ = false;
};

}  // namespace weir::cluster
