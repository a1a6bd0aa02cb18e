// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/vectors.h"

#include <algorithm>
#include <limits>

#include "weir/base/big_endian.h"

namespace weir {
namespace {

constexpr std::size_t kWord = sizeof(std::int64_t);

std::int64_t load(EpochView bytes, std::size_t at) {
  if (at + kWord > bytes.size()) return 0;
  return std::max<std::int64_t>(
      static_cast<std::int64_t>(load_be<std::uint64_t>(bytes.data() + at)), 0);
}

}  // namespace

EpochBytes pack_vector(std::span<const std::int64_t> values) {
  EpochBytes bytes(values.size() * kWord);
  std::byte* to = bytes.data();
  for (const std::int64_t value : values) to = store_be(to, static_cast<std::uint64_t>(value));
  return bytes;
}

EpochVector unpack_vector(EpochView bytes) {
  EpochVector values(bytes.size() / kWord);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load(bytes, i * kWord);
  return values;
}

void add_vectors(std::span<std::byte> out, EpochView a, EpochView b) {
  for (std::size_t at = 0; at + kWord <= out.size(); at += kWord) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(load(a, at), load(b, at), &sum)) {
      sum = std::numeric_limits<std::int64_t>::max();
    }
    store_be(out.data() + at, static_cast<std::uint64_t>(sum));
  }
}

}  // namespace weir
