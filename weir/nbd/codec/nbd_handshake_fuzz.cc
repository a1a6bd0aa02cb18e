// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a client may crash the handshake, or make it exceed its bounds or write anything
// except replies; and bytes in pieces must give the same events and answers as in one piece. The
// first byte selects the server, the second the size of the pieces; the rest is the client's bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"
#include "weir/nbd/codec/handshake.h"

namespace {

using namespace weir;
using namespace weir::nbd;

class Server {
 public:
  explicit Server(std::uint8_t choice)
      : choice_(choice),
        handshake_({.tls = static_cast<Tls>((choice & 3U) % 3),
                    .extended_headers = (choice & 64U) != 0}) {}

  // False when no more bytes may be fed.
  bool feed(std::span<const std::byte> in) {
    for (;;) {
      const Handshake::Event event = handshake_.next(in, out_);
      if (std::holds_alternative<NeedBytes>(event)) {
        WEIR_ASSERT(in.empty());
        return true;
      }
      last_ = answer(event);
      left_ = in.size();
      if (last_ != Next::kGoOn) return false;
    }
  }

  // What an observer sees: events, answers, how it ended, what was left of the last piece.
  std::string record(std::size_t not_fed) const {
    std::string text = events_ + "|" + std::to_string(static_cast<int>(last_)) + "|";
    if (last_ != Next::kGoOn) text += std::to_string(left_ + not_fed);
    if (last_ == Next::kTransmission) {
      const Session& session = handshake_.session();
      WEIR_ASSERT(!session.allocation || session.structured);
      WEIR_ASSERT(!session.extended || session.structured);
      WEIR_ASSERT(!session.extended || (!old_way_ && (choice_ & 64U) != 0));
      text += std::to_string(session.flags) + (session.allocation ? "a" : "-");
    }
    return text + std::string(reinterpret_cast<const char*>(out_.data()), out_.size());
  }

  // Only whole replies; the answer to NBD_OPT_EXPORT_NAME is the exception.
  void check_replies() const {
    std::span<const std::byte> left = out_;
    while (!left.empty() && !old_way_) {
      constexpr std::size_t kHead = 20;
      WEIR_ASSERT(left.size() >= kHead);
      WEIR_ASSERT(load_be<std::uint64_t>(left.data()) == kOptionReplyMagic);
      const auto length = load_be<std::uint32_t>(left.data() + 16);
      WEIR_ASSERT(length <= left.size() - kHead);
      left = left.subspan(kHead + length);
    }
    WEIR_ASSERT(out_.size() <= std::size_t{kOptionsMax} * 512);
  }

 private:
  Next answer(const Handshake::Event& event) {
    events_ += static_cast<char>('0' + event.index());
    if (const auto* want = std::get_if<WantExport>(&event)) {
      WEIR_ASSERT(want->name.size() <= kStringMax);
      events_ += want->name;
      old_way_ = want->purpose == Purpose::kExportName;
      if (want->name.starts_with('x')) {
        return handshake_.refuse(OptionReply::kErrUnknown, want->name, out_);
      }
      return handshake_.accept({.size = 1U << 20,
                                .flags = kSendFlush,
                                .blocks = {512, 4096, 1U << 20},
                                .reports_allocation = (choice_ & 4U) != 0,
                                .requires_block_sizes = (choice_ & 8U) != 0,
                                .name = "scratch",
                                .description = (choice_ & 16U) != 0 ? "text" : ""},
                               out_);
    }
    if (std::holds_alternative<WantList>(event)) {
      if ((choice_ & 32U) != 0) return handshake_.refuse(OptionReply::kErrPolicy, "no", out_);
      handshake_.list("scratch", "text", out_);
      return handshake_.end_list(out_);
    }
    if (std::holds_alternative<WantTls>(event)) return handshake_.start_tls(out_);
    return Next::kClose;
  }

  std::uint8_t choice_;
  Handshake handshake_;
  Handshake::Output out_;
  std::string events_;
  Next last_ = Next::kGoOn;
  std::size_t left_ = 0;
  bool old_way_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  std::span<const std::byte> client = std::as_bytes(std::span(bytes + 2, size - 2));
  Server whole(bytes[0]);
  whole.feed(client);
  whole.check_replies();

  Server pieces(bytes[0]);
  const std::size_t piece = bytes[1] % 32 + std::size_t{1};
  while (!client.empty()) {
    const auto first = client.first(std::min(piece, client.size()));
    client = client.subspan(first.size());
    if (!pieces.feed(first)) break;
  }
  WEIR_ASSERT(pieces.record(client.size()) == whole.record(0));
  return 0;
}
