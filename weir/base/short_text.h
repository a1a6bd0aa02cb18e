// SPDX-License-Identifier: Apache-2.0
//
// A text of up to 31 bytes of any value, stored inline in 32: names in the attributes of a request,
// which are copied, compared and hashed for each. A longer text is truncated to 31 bytes. Unused
// bytes are zero, so comparing and hashing use four words.
//
//   using JobId = ShortText<struct OfJob>;      texts of different kinds do not mix
//   JobId("dd.500").text() == "dd.500"
//
// Trivially copyable; holds no pointer.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "weir/base/hash.h"

namespace weir {

template <class Kind>
class alignas(8) ShortText {
 public:
  static constexpr std::size_t kSizeMax = 31;

  ShortText() = default;
  explicit ShortText(std::string_view text)
      : size_(static_cast<std::uint8_t>(std::min(text.size(), kSizeMax))) {
    if (size_ != 0) std::memcpy(bytes_.data(), text.data(), size_);
  }

  std::string_view text() const { return {bytes_.data(), size_}; }
  bool empty() const { return size_ == 0; }

  bool operator==(const ShortText& other) const {
    std::uint64_t differs = 0;
    for (std::size_t at = 0; at < sizeof *this; at += 8) differs |= word_at(at) ^ other.word_at(at);
    return differs == 0;
  }
  // Byte order of the texts: unused bytes are zero, and if all bytes are equal the size, which is
  // last, orders the shorter one first.
  std::strong_ordering operator<=>(const ShortText& other) const {
    return std::memcmp(this, &other, sizeof *this) <=> 0;
  }

  std::uint64_t hash() const {
    return hash_words(word_at(0), word_at(8)) ^
           hash_fold(word_at(16) ^ kHashKeys[2], word_at(24) ^ kHashKeys[3]);
  }

 private:
  // Little end first, on every machine.
  std::uint64_t word_at(std::size_t at) const {
    std::uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const char*>(this) + at, sizeof word);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    return word;
  }

  std::array<char, kSizeMax> bytes_{};
  std::uint8_t size_ = 0;
};

}  // namespace weir

template <class Kind>
struct std::hash<weir::ShortText<Kind>> {
  std::size_t operator()(const weir::ShortText<Kind>& text) const noexcept { return text.hash(); }
};
