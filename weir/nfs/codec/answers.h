// SPDX-License-Identifier: Apache-2.0
//
// Replies that the gateway makes itself: "try again later" for a call that has waited long enough.
// Each is a whole record with its mark, written to the caller's buffer; nothing allocates.
//
// Version 4.1 and later, DELAY by cut. A session's slot is busy while its call is parked, and one
// user's parked calls can take all slots of a mount. NFS4ERR_DELAY hands a slot back, but the
// server has to execute SEQUENCE, or client and server disagree about the slot's sequence number:
//
//   the client sends     SEQUENCE PUTFH READ               can_cut(call)
//   the server gets      SEQUENCE                          cut_call(): the same bytes, cut, count 1
//   the server replies   ok: SEQUENCE ok
//   the client gets      DELAY: SEQUENCE ok, PUTFH DELAY   mend_reply()
//
// The server now holds the reply of a call of one operation for that slot. If the client reconnects
// and sends the call again, the server answers from there: success, with results missing. So every
// reply of a session that has succeeded with fewer results than operations is mended, whether or
// not a cut is on record. A SEQUENCE that fails is forwarded unchanged.
//
// Versions 4.0 and 3 do not involve the server: delay_reply() and jukebox_reply().
//
// None of them is legal with RPCSEC_GSS, whose replies are signed, and none is for calls that
// release something that others wait for, or that keep leases and sessions alive; can_*() check
// this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/record.h"
#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

inline constexpr std::uint32_t kTagMax = 1024;  // of a compound that is answered; Linux sends none
// A record mark, the largest header, a tag with its length, two counts, and SEQUENCE or its result;
// then an operation and its status.
inline constexpr std::size_t kAnswerMax = kRecordMarkBytes + kCallHeaderMax + 4 + kTagMax + 64;

using AnswerBuffer = std::span<std::byte, kAnswerMax>;

bool can_cut(const Call& call);
// The record to send to the server instead. REQUIRES: can_cut(call), of this message.
Bytes cut_call(AnswerBuffer to, const MessageView& message, const Call& call);
// The record to send to the client instead of the server's reply; none if that is forwarded.
// REQUIRES: the message is the reply to that call.
std::optional<Bytes> mend_reply(AnswerBuffer to, const MessageView& message,
                                const PendingCall& pending);

// Minor version 0: the first operation is answered NFS4ERR_DELAY.
bool can_delay(const Call& call);
// REQUIRES: can_delay(call), and the server has not seen it.
Bytes delay_reply(AnswerBuffer to, const Call& call);

// Version 3: NFS3ERR_JUKEBOX, with no attributes.
bool can_jukebox(const Call& call);
// REQUIRES: can_jukebox(call), and the server has not seen it.
Bytes jukebox_reply(AnswerBuffer to, const Call& call);

}  // namespace weir::nfs
