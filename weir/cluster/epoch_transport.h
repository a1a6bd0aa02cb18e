// SPDX-License-Identifier: Apache-2.0
//
// Epoch messages between servers: each member, including the leader itself, has one stream to the
// leader. The leader's role in the epochs (ClusterLeader) also runs here, on the one thread that
// all of gRPC's callbacks write letters to. While that thread waits, gRPC's own threads process the
// messages of members that have joined.
//
//   member's loop --send()--> link ==stream==> ClusterLeader --> all streams
//                 <--received-- link <==========                |
//   membership    --follow(), lead(), stop_leading(), confirm(), set_limits(), set_known()--'
//
// In a cluster of more than `fanout` servers some are relays (relay_role_grpc.h): members send
// their messages to them, and use the stream to the leader only if a relay does not answer.
//
// A server that looks for a leader greets all registered servers, and each counts the servers that
// it is connected to (connections.h).
//
// The first frame each way is a hello. A member is rejected for its protocol version, for a name
// that another running member has, and for a term that is not this leader's; then it tries again.
// An invalid or oversized message ends only that stream and evicts only that member.
//
// A broken stream loses its messages; the epoch protocol tolerates that. All calls may be made from
// any thread and return at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/cluster/cluster_leader.h"
#include "weir/cluster/connections.h"
#include "weir/coordinate/epoch_tree.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/slices.h"

namespace weir::cluster {

class EpochTransport {
 public:
  struct Options {
    std::string name;
    std::uint64_t incarnation = 0;  // differs with every start of the server
    std::string listen;             // ADDRESS:PORT
    // Where other members reach it, if not there; port 0 stands for the port of `listen`.
    std::string address = {};
    std::string tls_directory;  // see credentials.h; empty: plain text
    SliceTerms terms = {};
    // Time limit for the first message of a stream; a peer that sends none is not a member.
    Nanoseconds hello_time = std::chrono::seconds{10};
    // Members that are served directly; larger clusters form a tree.
    std::size_t fanout = EpochTree::kFanout;
  };
  struct LinkState {
    bool is_joined = false;
    bool is_refused = false;  // the leader refuses this server
    std::string why;          // reason if it is not joined
    std::string leader;       // name of the leader, while joined
  };
  // Called one at a time, on the transport's thread or on a thread of gRPC.
  struct Listener {
    std::function<void(std::uint32_t term, std::string course, EpochMessage message)> received;
    std::function<void(const LinkState& state)>
        joined;                       // called when it joins and when it is no longer joined
    std::function<void()> connected;  // called when it is connected with more servers than before
    std::function<void(std::string_view line)> say;
  };
  struct Description {
    LinkState link;
    Result<serve::LeaderStatus> leader;
  };

  // Listens and starts its thread. The error names the address or the file.
  static Result<std::unique_ptr<EpochTransport>> create(const Options& options, Listener listener);
  // Calls stop().
  virtual ~EpochTransport() = default;
  EpochTransport(const EpochTransport&) = delete;
  EpochTransport& operator=(const EpochTransport&) = delete;

  // Ends all streams and the thread; all pending calls have been answered then.
  virtual void stop() = 0;

  // The port the kernel chose for port 0.
  virtual std::uint16_t port() const = 0;
  // Where the other members reach it.
  virtual std::string address() const = 0;

  // Reads and checks the certificates on disk. Calling the result makes new streams use them, in
  // both directions. Open streams continue.
  virtual Result<std::function<void()>> read_certificates() = 0;

  // ---- role of a member ----

  // The leader and its term; term 0: no known leader.
  virtual void follow(std::uint32_t term, const std::string& address) = 0;
  // To the leader of that term; dropped if there is another leader or no open stream.
  virtual void send(std::uint32_t term, const std::string& course, EpochMessage message) = 0;

  // ---- role of a leader ----

  // Whether there was an earlier leader: then members may hold slices that are not known here.
  enum class Before : std::uint8_t { kNobody, kSomebody };
  // Leads from now on; sends nothing from `until` on unless confirmed.
  virtual void lead(std::uint32_t term, Before before, Instant until) = 0;
  virtual void confirm(Instant until) = 0;
  virtual void stop_leading() = 0;
  virtual void set_limits(SliceLimits limits) = 0;
  // See ClusterLeader.
  virtual void set_known(MemberNames names, MemberNames running) = 0;

  // ---- role of a candidate ----

  // Greets these registered servers, until it is called with an empty list.
  virtual void seek(std::vector<Peer> registered) = 0;
  // Number of servers connected with this one, including itself: while it leads, those from which
  // messages arrived lately; while it looks for a leader, those whose greetings arrived lately.
  // Otherwise 1.
  virtual std::size_t connected() const = 0;

  // Asks the leader, which may be this server, for at most a second. The answer is delivered on its
  // thread; at once with ECANCELED if it has stopped.
  virtual void describe(const std::function<void(Description)>& answer) = 0;

 protected:
  EpochTransport() = default;
};

}  // namespace weir::cluster
