// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes the bytes of epoch messages and their payloads: big-endian integers, and byte
// strings with a length prefix. A reader that ran out of bytes, or found a length beyond its bound,
// stays failed and returns zeros from then on, so that a decoder reads everything and checks once
// at the end:
//
//   ByteReader in(bytes);
//   const auto epoch = in.get<std::int64_t>();
//   const EpochView data = in.stretch(kEpochDataMax);
//   if (!in.is_done()) ...                               the input is not valid
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "weir/base/big_endian.h"
#include "weir/coordinate/epoch.h"

namespace weir {

class ByteWriter {
 public:
  template <std::integral T>
  void put(T value) {
    using Unsigned = std::make_unsigned_t<T>;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    store_be<Unsigned>(bytes_.data() + at, static_cast<Unsigned>(value));
  }
  void stretch(EpochView view) {
    put(static_cast<std::uint32_t>(view.size()));
    bytes_.insert(bytes_.end(), view.begin(), view.end());
  }
  EpochBytes take() { return std::move(bytes_); }
  std::size_t size() const { return bytes_.size(); }

 private:
  EpochBytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(EpochView bytes) : left_(bytes) {}

  template <std::integral T>
  T get() {
    if (left_.size() < sizeof(T)) {
      fail();
      return 0;
    }
    const auto value = load_be<std::make_unsigned_t<T>>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return static_cast<T>(value);
  }
  EpochView stretch(std::size_t longest) {
    const auto length = get<std::uint32_t>();
    if (length > longest) is_too_long_ = true;
    if (length > longest || length > left_.size()) {
      fail();
      return {};
    }
    const EpochView found = left_.first(length);
    left_ = left_.subspan(length);
    return found;
  }
  // The number of items of this size that the remaining bytes can hold.
  std::size_t room_for(std::size_t size) const { return left_.size() / size; }

  void fail() {
    failed_ = true;
    left_ = {};
  }
  bool is_too_long() const { return is_too_long_; }
  bool is_done() const { return !failed_ && left_.empty(); }

 private:
  EpochView left_;
  bool failed_ = false;
  bool is_too_long_ = false;
};

}  // namespace weir
