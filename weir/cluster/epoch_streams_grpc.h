// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a stream between a member and its leader: gRPC's calls, which end in a completion
// queue, turned into a few events.
//
//   PeerStream   the leader's end    accepted -> frames ... -> ended
//   LinkStream   the member's end    frames ... -> ended, with the reason
//
// A stream may be destroyed when nothing of it is in the queue any more: is_over(). All of it is
// used by the thread that empties the queue. It shows gRPC, so it is for sources of this module
// alone and is not installed.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/coordinate/rider.h"

namespace weir::cluster {

// What stands in the queue: a function for when it is done.
struct Tag {
  std::function<void(bool is_ok)> done;
};

// Frames on their way out, one at a time. `write` begins to write one.
class FrameQueue {
 public:
  // Whoever does not read so many is not alive, or no friend.
  static constexpr std::size_t kFramesMax = 64;

  // False: too many wait, and it was dropped.
  bool push(Frame frame) {
    if (frames_.size() >= kFramesMax) return false;
    frames_.push_back(std::move(frame));
    return true;
  }
  // The one to be written next, if none is being written.
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

class PeerStream {
 public:
  struct Events {
    std::function<void(PeerStream&)> accepted;
    std::function<void(PeerStream&, const Frame&)> frame;
    std::function<void(PeerStream&)> ended;
  };

  // Waits for somebody to come.
  PeerStream(Epochs::AsyncService& service, grpc::ServerCompletionQueue& queue,
             const Events& events);
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  void send(Frame frame);
  // Ends it with these words to the peer.
  void finish(const grpc::Status& status);
  bool is_over() const { return pending_ == 0 && has_ended_; }

  MemberId member = 0;  // once it has said who it is

 private:
  Tag& begin(Tag& tag) {
    ++pending_;
    return tag;
  }
  void read();
  void write();
  void end();
  void finish_now();

  const Events& events_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<Frame, Frame> stream_;
  Frame incoming_;
  FrameQueue outgoing_;
  std::optional<grpc::Status> last_words_;
  bool is_finishing_ = false;
  bool has_ended_ = false;
  int pending_ = 0;
  Tag accepted_, read_, written_, finished_;
};

class LinkStream {
 public:
  struct Events {
    std::function<void(LinkStream&, const Frame&)> frame;
    std::function<void(LinkStream&, const grpc::Status&)> ended;
  };

  LinkStream(Epochs::Stub& stub, grpc::CompletionQueue& queue, const Hello& hello,
             const Events& events);
  LinkStream(const LinkStream&) = delete;
  LinkStream& operator=(const LinkStream&) = delete;

  void send(Frame frame);
  void close() { context_.TryCancel(); }
  bool is_over() const { return pending_ == 0 && has_ended_; }

  bool is_joined = false;

 private:
  Tag& begin(Tag& tag) {
    ++pending_;
    return tag;
  }
  void read();
  void write();
  void finish();

  const Events& events_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<Frame, Frame>> stream_;
  Frame incoming_;
  FrameQueue outgoing_;
  grpc::Status status_;
  bool is_open_ = false;
  bool is_finishing_ = false;
  bool has_ended_ = false;
  int pending_ = 0;
  Tag opened_, read_, written_, finished_;
};

}  // namespace weir::cluster
