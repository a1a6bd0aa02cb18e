// SPDX-License-Identifier: Apache-2.0
//
// Sends the greetings of a server that looks for a leader: to each peer, every kEvery, while there
// are peers. connections.h explains what they prove.
//
// Connections are kept while a peer is greeted, and closed with it. A failed greeting is repeated
// with the next one; each peer has one in progress at a time. All calls are made by the thread that
// reads the mailbox, to which gRPC's callbacks write. It exposes gRPC types, so it is private to
// this module and not installed.
#pragma once

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

class Greeter {
 public:
  static constexpr Nanoseconds kEvery = std::chrono::milliseconds{300};

  // REQUIRES: the credentials and the mailbox outlive it.
  Greeter(Greeting own, const Credentials& credentials, Letters& letters);
  ~Greeter();
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;

  // The peers to greet from now on; new ones at once.
  void set_peers(const std::vector<Peer>& peers, Instant now);
  bool has_peers() const { return !targets_.empty(); }
  // The certificates have changed: the next greetings use connections with the new ones.
  void renew();
  void tick(Instant now);
  Instant next_wake() const { return targets_.empty() ? kNever : greet_at_; }
  // Calls in progress end soon.
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
  Letters& letters_;
  std::vector<std::shared_ptr<Target>> targets_;
  std::list<std::unique_ptr<Call>> calls_;
  Instant greet_at_ = kNever;
};

}  // namespace weir::cluster
