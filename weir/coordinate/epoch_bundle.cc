// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_bundle.h"

#include <algorithm>
#include <span>
#include <utility>

#include "weir/coordinate/bytes.h"

namespace weir {
namespace {

// Of a message without its bytes: member and two lengths.
constexpr std::size_t kLeastEntry = 16;

}  // namespace

EpochBytes pack_bundle(const EpochBundle& bundle) {
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(bundle.size()));
  for (const CarriedMessage& one : bundle) {
    out.put(one.member);
    out.stretch(std::as_bytes(std::span(one.course)));
    out.stretch(one.message);
  }
  return out.take();
}

std::optional<EpochBundle> read_bundle(EpochView bytes) {
  ByteReader in(bytes);
  const auto count = in.get<std::uint32_t>();
  if (count > in.room_for(kLeastEntry)) return std::nullopt;
  EpochBundle bundle;
  bundle.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    CarriedMessage& one = bundle.emplace_back();
    one.member = in.get<MemberId>();
    const EpochView course = in.stretch(kCourseNameMax);
    one.course.assign(reinterpret_cast<const char*>(course.data()), course.size());
    const EpochView message = in.stretch(kEpochMessageMax);
    one.message.assign(message.begin(), message.end());
  }
  if (!in.is_done()) return std::nullopt;
  return bundle;
}

std::vector<EpochBundle> split_bundle(EpochBundle all) {
  std::vector<EpochBundle> parts;
  std::size_t room = 0;
  for (CarriedMessage& one : all) {
    const std::size_t size = kLeastEntry + one.course.size() + one.message.size();
    if (parts.empty() || size > room) {
      parts.emplace_back();
      room = kBundleFull;
    }
    room -= std::min(room, size);
    parts.back().push_back(std::move(one));
  }
  return parts;
}

}  // namespace weir
