// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/local_wire.h"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "weir/base/big_endian.h"
#include "weir/coordinate/bytes.h"
#include "weir/coordinate/message.h"

namespace weir {
namespace {

constexpr std::size_t kHead = 8;
constexpr std::uint8_t kVersion = 1;

enum class Kind : std::uint8_t { kJoin = 1, kReady, kLeave, kJoined, kStart, kError };

EpochView view_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string message_of(Kind kind, EpochView body) {
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(body.size()));
  out.put(static_cast<std::uint8_t>(kind));
  out.put(kVersion);
  out.put(std::uint16_t{0});
  const EpochBytes head = out.take();
  std::string text(reinterpret_cast<const char*>(head.data()), head.size());
  text.append(reinterpret_cast<const char*>(body.data()), body.size());
  return text;
}

Error not_valid(std::string what) {
  return {std::errc::bad_message, "message", std::move(what), {}};
}

Result<LocalMessage> read_join(EpochView body) {
  constexpr std::size_t kFixed = 5;
  if (body.size() < kFixed) return tl::unexpected(not_valid("a join of less than 5 bytes"));
  ByteReader in(body.first(kFixed));
  const auto combine = in.get<std::uint8_t>();
  const Nanoseconds timeout = std::chrono::milliseconds{in.get<std::uint32_t>()};
  const EpochView rest = body.subspan(kFixed);
  std::string name(reinterpret_cast<const char*>(rest.data()), rest.size());
  if (combine < static_cast<std::uint8_t>(Combine::kSum) ||
      combine > static_cast<std::uint8_t>(Combine::kGather)) {
    return tl::unexpected(not_valid(fmt::format("combine {}: expected 1 to 5", combine)));
  }
  if (timeout <= Nanoseconds{0} || timeout > kEpochTimeoutMax) {
    return tl::unexpected(not_valid("a timeout that is not 1 to 3600000 ms"));
  }
  if (!is_local_name(name)) {
    return tl::unexpected(not_valid(fmt::format(
        "a name that is not 1 to {} letters, digits, '-', '_' and '.'", kLocalCourseMax)));
  }
  return LocalJoin{static_cast<Combine>(combine), timeout, std::move(name)};
}

Result<LocalMessage> read_ready(EpochView body) {
  if (body.size() < sizeof(std::int64_t)) {
    return tl::unexpected(not_valid("a ready without an epoch"));
  }
  ByteReader in(body.first(sizeof(std::int64_t)));
  const auto epoch = in.get<std::int64_t>();
  if (epoch < 0) return tl::unexpected(not_valid("a ready for a negative epoch"));
  const EpochView data = body.subspan(sizeof epoch);
  return LocalReady{epoch, {data.begin(), data.end()}};
}

Result<LocalMessage> read_body(std::uint8_t kind, EpochView body) {
  if (kind == static_cast<std::uint8_t>(Kind::kJoin)) return read_join(body);
  if (kind == static_cast<std::uint8_t>(Kind::kReady)) return read_ready(body);
  if (kind == static_cast<std::uint8_t>(Kind::kLeave) && body.empty()) return LocalLeave{};
  return tl::unexpected(not_valid(
      fmt::format("kind {} of {} bytes: expected join, ready or leave", kind, body.size())));
}

}  // namespace

Result<std::optional<LocalMessage>> LocalReader::next() {
  if (bytes_.size() < kHead) return std::nullopt;
  ByteReader in(view_of(std::string_view(bytes_).substr(0, kHead)));
  const auto length = in.get<std::uint32_t>();
  const auto kind = in.get<std::uint8_t>();
  const auto version = in.get<std::uint8_t>();
  if (version != kVersion || in.get<std::uint16_t>() != 0) {
    return fail(std::errc::protocol_not_supported, "message",
                fmt::format("version {}: expected {}", version, kVersion));
  }
  if (length > kBodyMax) {
    return fail(std::errc::message_size, "message",
                fmt::format("{} bytes: at most {} are accepted", length, kBodyMax));
  }
  if (bytes_.size() < kHead + length) return std::nullopt;
  auto message = read_body(kind, view_of(std::string_view(bytes_).substr(kHead, length)));
  if (!message) return tl::unexpected(message.error());
  bytes_.erase(0, kHead + length);
  return std::optional(*std::move(message));
}

std::string local_joined() { return message_of(Kind::kJoined, {}); }

std::string local_start(std::int64_t epoch, EpochView reduced) {
  ByteWriter out;
  out.put(epoch);
  EpochBytes body = out.take();
  body.insert(body.end(), reduced.begin(), reduced.end());
  return message_of(Kind::kStart, body);
}

std::string local_error(int error, std::string_view text) {
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(error));
  EpochBytes body = out.take();
  const EpochView rest = view_of(text);
  body.insert(body.end(), rest.begin(), rest.end());
  return message_of(Kind::kError, body);
}

}  // namespace weir
