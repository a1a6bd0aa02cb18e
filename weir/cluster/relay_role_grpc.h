// SPDX-License-Identifier: Apache-2.0
//
// A server's place in the tree of epochs (weir/coordinate/epoch_tree.h): the streams of the members
// below it, and its own stream to its relay. Its stream to the leader belongs to the transport, and
// is the way whenever the tree is none.
//
//   children ==streams==> RelayRole ==bundles==> its relay, or upwards() to the leader
//            <==========            <==========  its relay, or down() from the leader
//
// A relay refuses children while it has not joined the leader that they follow. A child that sends
// what no member may send loses its stream, and then uses its own to the leader. Runs on the
// transport's thread. It exposes gRPC types, so it is private to this module and not installed.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "weir/base/time.h"
#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/cluster/epoch_streams_grpc.h"
#include "weir/coordinate/epoch_bundle.h"
#include "weir/coordinate/epoch_relay.h"
#include "weir/coordinate/message.h"

namespace weir::cluster {

Frame frame_of_bytes(const std::string& course, const EpochBytes& message);
inline EpochView view_of(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }
// The frames of messages for, or from, `receiver`: a single message of its own needs no bundle.
std::vector<Frame> frames_of(EpochBundle bundle, MemberId receiver);

class RelayRole {
 public:
  // A relay that cannot be reached is tried again after this time.
  static constexpr Nanoseconds kRetry = std::chrono::seconds{1};

  struct Surroundings {
    std::function<void(const std::string& course, EpochMessage message)> received;
    std::function<void(Frame frame)> upwards;  // to the leader
    std::function<std::unique_ptr<Epochs::Stub>(const std::string& address)> stub;
    std::function<void(const std::string& line)> say;
  };

  RelayRole(Letters& letters, Surroundings surroundings);

  // It has joined a leader in this term, as this member.
  void joined(const Hello& own, MemberId member);
  // It has no stream to a leader any more.
  void left();
  // Its relay, as the leader says; empty: none.
  void route(const std::string& address, Instant now);

  // A message of this server's member. False: it must be sent to the leader.
  bool send(const std::string& course, const EpochMessage& message, Instant now);
  // An answer for this server's member has come.
  void answered(const std::string& course, const EpochMessage& message, EpochWay::Way by);
  // A bundle from the leader. False: it is not valid.
  bool down(EpochView bundle);

  // A child has opened a stream, sent a frame, or has left.
  void accept(PeerStream& child, const Hello& hello);
  void child_frame(PeerStream& child, const Frame& frame, Instant now);
  void child_ended(PeerStream& child);

  void tick(Instant now);
  Instant next_wake() const { return std::min(relay_.next_wake(), connect_at_); }
  void close();
  bool is_over() const { return links_.empty(); }

 private:
  void connect();
  void frame(const Frame& frame);
  void ended(const LinkStream& link);
  void hand_down();
  bool has_relay() const { return link_ != nullptr && link_->is_joined; }

  Letters& letters_;
  Surroundings surroundings_;
  LinkStream::Events events_;
  EpochRelay relay_{0};
  std::map<std::string, EpochWay> ways_;              // by course
  std::map<EpochRelay::Link, PeerStream*> children_;  // by member
  Hello own_;                                         // for its relay
  MemberId member_ = 0;                               // 0: it has not joined
  std::string address_;                               // of its relay
  std::unique_ptr<Epochs::Stub> stub_;
  LinkStream* link_ = nullptr;  // to its relay, among links_
  std::list<std::unique_ptr<LinkStream>> links_;
  Instant connect_at_ = kNever;
};

}  // namespace weir::cluster
