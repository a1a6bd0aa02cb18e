// SPDX-License-Identifier: Apache-2.0
//
// NFS as a protocol of the server (weir/serve/session.h): the gateway's side of one client, over
// the codec. No socket: bytes of the client and of the server in, bytes to both out.
//
//   serve::add_protocol(nfs::protocol("nfs", gateway));
//
//   client ---> records ---> read_call ---> free, callback's reply ------------> server
//                               |---------> exempt: charged, performed at once -->
//                               |---------> queued in the Target --> performed -->
//                               '---------> too many parked: cut to SEQUENCE ---->
//   client <--- records <--- read_reply: settles bytes, gives the slot back <---- server
//
// Every message is forwarded unchanged, except calls that are cut and their replies (answers.h),
// and the probe for TLS, which is refused. A message of up to kWholeMax bytes is kept until it is
// complete; a longer one is classified by its first bytes and forwarded while it arrives, once its
// turn has come. Records do not overlap: calls whose turn comes meanwhile wait for its end.
//
// Calls are identified by their xid. Another call with the xid and the bytes of one that waits is a
// retransmission and is dropped; if the first one has been forwarded, so is the second, and the
// server decides. Neither is charged. A different call with the xid of an unanswered one ends the
// connection.
//
// A client that NfsOptions::accepts_proxy lists sends a PROXY header first; the connection to the
// server is made when it has arrived, since the header may name another client.
//
// When the client leaves, calls that wait are dropped and the connection to the server is reset.
// When the server closes, the client is disconnected: it reconnects and sends its calls again.
//
// Bounds: kCallsMax unanswered calls; bytes held are charged to the connection. A client that stops
// within a message for kStallMax is disconnected; a call that the server has not answered for kLate
// gives up its slot. While the server answers nothing on a connection for kSilent and more, its
// calls give up all but kSilentSlots of their slots, so that others are served: at once if others
// are answered, otherwise step by step.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "weir/base/time.h"
#include "weir/nfs/codec/record.h"
#include "weir/nfs/gateway.h"
#include "weir/serve/protocol.h"
#include "weir/serve/session.h"

namespace weir::nfs {

inline constexpr std::size_t kWholeMax = std::size_t{64} << 10;
inline constexpr std::size_t kHeadBytes = std::size_t{8} << 10;  // of a longer message
inline constexpr std::size_t kCallsMax = 65'536;
inline constexpr Nanoseconds kStallMax = std::chrono::seconds{60};
// A proxy sends its header at once.
inline constexpr Nanoseconds kHeaderMax = std::chrono::seconds{5};
inline constexpr Nanoseconds kLate = std::chrono::seconds{30};
inline constexpr Nanoseconds kSilent = std::chrono::seconds{1};
inline constexpr std::uint32_t kSilentSlots = 2;
inline constexpr Nanoseconds kSilentNote = std::chrono::seconds{10};  // then it is logged
// The most bytes that a call is charged for, whatever counts it claims: no record is longer.
inline constexpr std::uint64_t kChargeMax = kRecordMaxLimit;
// A context of RPCSEC_GSS may have this many parked calls; beyond it, calls that need not wait
// queue behind them: servers keep a window of 128 sequence numbers.
inline constexpr std::uint32_t kGssParkedMax = 64;

// REQUIRES: the gateway outlives the server.
serve::ProtocolKind protocol(std::string name, Gateway& gateway);

// A protocol beside NFS (MOUNT, NLM, NSM, portmap) on another port of the same server: its calls
// are forwarded at once and unchanged. kOfServer: the NFS server itself serves it, so that it gets
// a PROXY header if NFS does.
enum class RelayKind : std::uint8_t { kOfServer, kPlain };
serve::ProtocolKind relay(std::string name, Gateway& gateway, std::uint16_t port, RelayKind kind);

std::unique_ptr<serve::Session> begin_session(serve::SessionPort& port, Gateway& gateway);

}  // namespace weir::nfs
