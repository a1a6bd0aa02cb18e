// SPDX-License-Identifier: Apache-2.0
//
// Greetings between servers that look for a leader: gRPC's calls, which end in a completion queue,
// turned into a few events. See connections.h for what they prove.
//
//   GreetingDoor   greetings that arrive      arrived(greeting)
//   Greeter        greetings that are sent    to each peer, every kEvery while there are peers
//
// Connections are kept while a peer is greeted and closed with it. A greeting that fails is tried
// again with the next; a peer has one on its way at a time. All of it is used by the thread that
// empties the queue. It shows gRPC, so it is for sources of this module alone and is not installed.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "weir/base/time.h"
#include "weir/cluster/connections.h"
#include "weir/cluster/credentials.h"
#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/cluster/epoch_streams_grpc.h"

namespace weir::cluster {

class GreetingDoor {
 public:
  using Arrived = std::function<void(const Greeting&)>;

  GreetingDoor(Epochs::AsyncService& service, grpc::ServerCompletionQueue& queue, Arrived arrived);
  ~GreetingDoor();
  GreetingDoor(const GreetingDoor&) = delete;
  GreetingDoor& operator=(const GreetingDoor&) = delete;

  // Waits for the next one; once, then by itself until the server ends.
  void open();
  // Nothing of it is in the queue any more.
  bool is_over() const { return waiting_.empty(); }

 private:
  struct Call;

  Epochs::AsyncService& service_;
  grpc::ServerCompletionQueue& queue_;
  Arrived arrived_;
  std::list<std::unique_ptr<Call>> waiting_;
};

class Greeter {
 public:
  static constexpr Nanoseconds kEvery = std::chrono::milliseconds{300};

  // The credentials and the queue outlive it.
  Greeter(Greeting own, const Credentials& credentials, grpc::CompletionQueue& queue);
  ~Greeter();
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;

  // Whom to greet from now on; those that are new at once.
  void set_peers(const std::vector<Peer>& peers, Instant now);
  bool has_peers() const { return !targets_.empty(); }
  // The certificates have changed: next greetings go over connections with the new ones.
  void renew();
  void tick(Instant now);
  Instant next_wake() const { return targets_.empty() ? kNever : greet_at_; }
  // Calls that are on their way end soon.
  void close();
  bool is_over() const { return calls_.empty(); }

 private:
  struct Target {
    Peer peer;
    std::unique_ptr<Epochs::Stub> stub;
    bool is_calling = false;
  };
  struct Call;

  void greet(const std::shared_ptr<Target>& target);
  void open_channel(Target& target) const;

  Greeting own_;
  const Credentials& credentials_;
  grpc::CompletionQueue& queue_;
  std::vector<std::shared_ptr<Target>> targets_;
  std::list<std::unique_ptr<Call>> calls_;
  Instant greet_at_ = kNever;
};

}  // namespace weir::cluster
