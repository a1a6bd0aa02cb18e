// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/client.h"

#include <algorithm>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"

namespace weir::nbd {
namespace {

constexpr std::size_t kHeadBytes = 20;  // of an option reply

template <class T>
void append_be(std::vector<std::byte>& out, T value) {
  std::byte bytes[sizeof value];
  store_be(bytes, value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

std::string text_of(std::span<const std::byte> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::string(cut_text(text));
}

// The request for the export and its block sizes.
void append_go(const std::string& name, std::vector<std::byte>& out) {
  append_be(out, kOptionMagic);
  append_be(out, static_cast<std::uint32_t>(Option::kGo));
  append_be(out, static_cast<std::uint32_t>(4 + name.size() + 2 + 2));
  append_be(out, static_cast<std::uint32_t>(name.size()));
  for (const char c : name) out.push_back(static_cast<std::byte>(c));
  append_be(out, std::uint16_t{1});
  append_be(out, static_cast<std::uint16_t>(Item::kBlockSize));
}

bool is_error(OptionReply reply) { return (static_cast<std::uint32_t>(reply) >> 31) != 0; }

}  // namespace

ClientHandshake::State ClientHandshake::expect(Part part, std::size_t bytes) {
  part_ = part;
  wanted_ = bytes;
  bytes_.clear();
  return State::kNeedBytes;
}

ClientHandshake::State ClientHandshake::failed(std::string error) {
  error_ = std::move(error);
  return State::kFailed;
}

ClientHandshake::State ClientHandshake::next(Input& in, Output& out) {
  for (;;) {
    const std::size_t taken = std::min(in.size(), wanted_ - bytes_.size());
    bytes_.insert(bytes_.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(taken));
    in = in.subspan(taken);
    if (bytes_.size() < wanted_) return State::kNeedBytes;
    State state = State::kFailed;
    switch (part_) {
      case Part::kGreeting:
        state = read_greeting(out);
        break;
      case Part::kHead:
        state = read_head();
        break;
      case Part::kBody:
        state = read_body();
        break;
    }
    if (state != State::kNeedBytes) return state;
  }
}

ClientHandshake::State ClientHandshake::read_greeting(Output& out) {
  if (load_be<std::uint64_t>(bytes_.data()) != kInitPasswd) return failed("is not an NBD server");
  const auto flags = load_be<std::uint16_t>(bytes_.data() + 16);
  if (load_be<std::uint64_t>(bytes_.data() + 8) != kOptionMagic || (flags & kFixedNewstyle) == 0) {
    return failed("speaks the old NBD protocol, which has no options");
  }
  const bool omits_zeroes = (flags & kNoZeroes) != 0;
  append_be(out, kClientFixedNewstyle | (omits_zeroes ? kClientNoZeroes : 0U));
  append_go(name_, out);
  return expect(Part::kHead, kHeadBytes);
}

ClientHandshake::State ClientHandshake::read_head() {
  const auto option = load_be<std::uint32_t>(bytes_.data() + 8);
  if (load_be<std::uint64_t>(bytes_.data()) != kOptionReplyMagic ||
      option != static_cast<std::uint32_t>(Option::kGo)) {
    return failed("sent a reply that does not answer NBD_OPT_GO");
  }
  reply_ = static_cast<OptionReply>(load_be<std::uint32_t>(bytes_.data() + 12));
  const auto length = load_be<std::uint32_t>(bytes_.data() + 16);
  if (length > kOptionReplyMax) return failed("sent an option reply that is too long");
  return expect(Part::kBody, length);
}

ClientHandshake::State ClientHandshake::read_body() {
  if (is_error(reply_)) {
    const std::string text = text_of(bytes_);
    if (!text.empty()) return failed("refused the export: " + text);
    return failed(reply_ == OptionReply::kErrTlsReqd ? "requires TLS" : "refused the export");
  }
  if (reply_ == OptionReply::kAck) {
    return has_export_ ? State::kReady : failed("did not describe the export");
  }
  if (reply_ != OptionReply::kInfo || bytes_.size() < 2) {
    return failed("sent a reply that does not answer NBD_OPT_GO");
  }
  return read_item(bytes_);
}

ClientHandshake::State ClientHandshake::read_item(std::span<const std::byte> item) {
  const auto kind = static_cast<Item>(load_be<std::uint16_t>(item.data()));
  const std::byte* const body = item.data() + 2;
  if (kind == Item::kExport) {
    if (item.size() != 12) return failed("described the export with a wrong length");
    session_.size = load_be<std::uint64_t>(body);
    session_.flags = load_be<std::uint16_t>(body + 8);
    has_export_ = true;
  } else if (kind == Item::kBlockSize) {
    if (item.size() != 14) return failed("described block sizes with a wrong length");
    session_.blocks = {.minimum = load_be<std::uint32_t>(body),
                       .preferred = load_be<std::uint32_t>(body + 4),
                       .maximum = load_be<std::uint32_t>(body + 8)};
  }
  return expect(Part::kHead, kHeadBytes);
}

void append_request(const Request& request, std::vector<std::byte>& out) {
  append_be(out, kRequestMagic);
  append_be(out, request.flags);
  append_be(out, static_cast<std::uint16_t>(request.command));
  append_be(out, request.cookie);
  append_be(out, request.offset);
  append_be(out, static_cast<std::uint32_t>(request.length));
}

std::optional<SimpleReply> read_reply(std::span<const std::byte> bytes) {
  WEIR_ASSERT(bytes.size() == kReplyBytes, bytes.size());
  if (load_be<std::uint32_t>(bytes.data()) != kSimpleReplyMagic) return std::nullopt;
  return SimpleReply{static_cast<ErrorCode>(load_be<std::uint32_t>(bytes.data() + 4)),
                     load_be<std::uint64_t>(bytes.data() + 8)};
}

}  // namespace weir::nbd
