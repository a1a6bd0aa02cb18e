// SPDX-License-Identifier: Apache-2.0
//
// The client side of NBD, as bytes in and bytes out: enough to read and write one export. The owner
// holds the socket.
//
//   ClientHandshake handshake("scratch,job=a");
//   switch (handshake.next(in, out)) {             advances `in` past the bytes it has used
//     kNeedBytes    send `out`, then call again with more
//     kReady        session() is valid; the rest of `in` is replies
//     kFailed       error() says why, in the server's words if it gave any
//   }
//   append_request({.command = Command::kRead, ...}, out);     the payload of a write follows
//   read_reply(bytes)                                          a read's data follows, if no error
//
// The export is opened with NBD_OPT_GO. Structured replies are not requested, so a reply is a
// simple reply. Nothing from the server is trusted: an option reply of more than kOptionReplyMax
// bytes ends the handshake, as does one that was not asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weir/nbd/codec/protocol.h"
#include "weir/nbd/codec/requests.h"

namespace weir::nbd {

inline constexpr std::size_t kOptionReplyMax = 65'536;
inline constexpr std::size_t kReplyBytes = 16;

class ClientHandshake {
 public:
  using Input = std::span<const std::byte>;
  using Output = std::vector<std::byte>;
  enum class State : std::uint8_t { kNeedBytes, kReady, kFailed };

  // REQUIRES: the name has at most kStringMax bytes.
  explicit ClientHandshake(std::string export_name) : name_(std::move(export_name)) {}

  // REQUIRES: the last call returned kNeedBytes.
  State next(Input& in, Output& out);

  // REQUIRES: kReady.
  const Session& session() const { return session_; }
  // REQUIRES: kFailed.
  const std::string& error() const { return error_; }

 private:
  enum class Part : std::uint8_t { kGreeting, kHead, kBody };

  State read_greeting(Output& out);
  State read_head();
  State read_body();
  State read_item(std::span<const std::byte> item);
  State expect(Part part, std::size_t bytes);
  State failed(std::string error);

  const std::string name_;
  Part part_ = Part::kGreeting;
  std::size_t wanted_ = 18;  // bytes of the greeting
  std::vector<std::byte> bytes_;
  OptionReply reply_ = OptionReply::kAck;
  bool has_export_ = false;
  Session session_;
  std::string error_;
};

void append_request(const Request& request, std::vector<std::byte>& out);

struct SimpleReply {
  ErrorCode error = ErrorCode::kNone;
  std::uint64_t cookie = 0;
  bool operator==(const SimpleReply&) const = default;
};
// None if it is not a simple reply. REQUIRES: kReplyBytes bytes.
std::optional<SimpleReply> read_reply(std::span<const std::byte> bytes);

}  // namespace weir::nbd
