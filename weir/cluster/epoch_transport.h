// SPDX-License-Identifier: Apache-2.0
//
// Epoch messages between servers: each member, including the leader itself, has one stream to the
// leader. The leader's part of the epochs (EpochLeader and SliceLeader) lives here too, on the one
// thread that all of gRPC's callbacks write letters to.
//
//   member's loop --send()--> link ==stream==> ClusterLeader --> all streams
//                 <--received-- link <==========                |
//   membership    --follow(), lead(), stop_leading(), confirm(), set_limits(), set_known()--'
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
#include "weir/coordinate/message.h"
#include "weir/coordinate/slices.h"

namespace weir::cluster {

class EpochTransport {
 public:
  struct Options {
    std::string name;
    std::uint64_t incarnation = 0;  // another with every start of the server
    std::string listen;             // ADDRESS:PORT
    std::string tls_directory;      // see credentials.h; empty: plain
    SliceTerms terms = {};
  };
  struct LinkState {
    bool is_joined = false;
    bool is_refused = false;  // by the leader, for what we are
    std::string why;          // it is not joined
    std::string leader;       // the name it gave, while it is joined
  };
  // Called on the transport's thread.
  struct Listener {
    std::function<void(std::uint32_t term, std::string course, EpochMessage message)> received;
    std::function<void(const LinkState& state)> joined;  // or not, any more
    std::function<void()> connected;                     // with more servers than before
    std::function<void(std::string_view line)> say;
  };
  struct Description {
    LinkState link;
    Result<serve::LeaderStatus> leader;
  };

  // Listens and starts its thread. The error names the address or the file.
  static Result<std::unique_ptr<EpochTransport>> create(const Options& options, Listener listener);
  // As stop().
  virtual ~EpochTransport() = default;
  EpochTransport(const EpochTransport&) = delete;
  EpochTransport& operator=(const EpochTransport&) = delete;

  // Ends all streams and the thread; all that was asked has been answered then.
  virtual void stop() = 0;

  // The port the kernel chose for port 0.
  virtual std::uint16_t port() const = 0;

  // The certificates as they are on disk now, checked; streams that begin after the call of what is
  // returned use them, either way. Those that stand go on.
  virtual Result<std::function<void()>> read_certificates() = 0;

  // ---- a member's part ----

  // Who leads in which term; term 0: nobody that is known.
  virtual void follow(std::uint32_t term, const std::string& address) = 0;
  // To the leader of that term; dropped if another is followed or no stream stands.
  virtual void send(std::uint32_t term, const std::string& course, EpochMessage message) = 0;

  // ---- a leader's part ----

  // Whether somebody has led before: then slices may be held that nobody here knows of.
  enum class Before : std::uint8_t { kNobody, kSomebody };
  // From now on; silent from `until` on unless it is confirmed.
  virtual void lead(std::uint32_t term, Before before, Instant until) = 0;
  virtual void confirm(Instant until) = 0;
  virtual void stop_leading() = 0;
  virtual void set_limits(SliceLimits limits) = 0;
  // See ClusterLeader.
  virtual void set_known(MemberNames names, MemberNames running) = 0;

  // ---- a candidate's part ----

  // The servers that are registered, to be greeted until this is called without any.
  virtual void seek(std::vector<Peer> registered) = 0;
  // Servers that are connected with this one, itself included: while it leads those it has
  // heard lately, while it seeks those whose greetings arrived lately. Otherwise 1.
  virtual std::size_t connected() const = 0;

  // Asks the leader, here or elsewhere, at most for a second. The answer comes on its thread;
  // at once with ECANCELED if it has stopped.
  virtual void describe(const std::function<void(Description)>& answer) = 0;

 protected:
  EpochTransport() = default;
};

}  // namespace weir::cluster
