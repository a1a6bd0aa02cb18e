// SPDX-License-Identifier: Apache-2.0
//
// Payloads of the rounds of the epoch handler. A reduction gives all members the same data; some
// uses, such as slices of a limit, need a different answer for each member. Their bytes are sent
// with Ready (the claim) and with Start (the grant) and are opaque to the handler:
//
//   member side    claim()  -> Ready ->  ready()    leader side
//                  granted() <- Start <- grant()    after close()
//
// Implementations check the bytes they receive: false means that they are not valid; then the
// member that sent them is evicted, or the grant is dropped.
#pragma once

#include <cstdint>

#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"

namespace weir {

using MemberId = std::uint64_t;

class LeaderRoundPayload {
 public:
  LeaderRoundPayload() = default;
  LeaderRoundPayload(const LeaderRoundPayload&) = delete;
  LeaderRoundPayload& operator=(const LeaderRoundPayload&) = delete;
  virtual ~LeaderRoundPayload() = default;

  // A member has signalled, for the first time with this serial.
  [[nodiscard]] virtual bool ready(MemberId member, EpochView data, EpochView claim,
                                   Instant now) = 0;
  // The round is over for the members that signalled: decide.
  virtual void close(Instant now) = 0;
  // REQUIRES: it signalled in the round that closed.
  virtual EpochBytes grant(MemberId member) = 0;
  // The member was evicted; its grant may be in use until it expires.
  virtual void gone(MemberId member) = 0;
  // The member left and uses nothing any more.
  virtual void left(MemberId member) = 0;
};

class MemberRoundPayload {
 public:
  MemberRoundPayload() = default;
  MemberRoundPayload(const MemberRoundPayload&) = delete;
  MemberRoundPayload& operator=(const MemberRoundPayload&) = delete;
  virtual ~MemberRoundPayload() = default;

  // The claim for a Ready that is sent now.
  virtual EpochBytes claim(Instant now) = 0;
  [[nodiscard]] virtual bool granted(EpochView grant, Instant now) = 0;
  // The next claim is sent to another leader.
  virtual void lost() = 0;
};

}  // namespace weir
