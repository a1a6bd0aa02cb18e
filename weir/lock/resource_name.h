// SPDX-License-Identifier: Apache-2.0
//
// The name of a resource in 16 bytes: up to 15 bytes are stored in place, longer ones in one
// allocation. std::string takes 32. A table has a million of them.
//
// Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "weir/base/assert.h"

namespace weir::lock {

class ResourceName {
 public:
  static constexpr std::size_t kSizeMax = UINT8_MAX;

  ResourceName() = default;
  ResourceName(const ResourceName&) = delete;
  ResourceName& operator=(const ResourceName&) = delete;
  ~ResourceName() { clear(); }

  // REQUIRES: at most kSizeMax bytes, which are not part of this name.
  void assign(std::string_view name) {
    WEIR_ASSERT(name.size() <= kSizeMax, name.size());
    clear();
    char* to = bytes_.data();
    if (name.size() > bytes_.size()) {
      to = new char[name.size()];
      std::memcpy(bytes_.data() + kPointerAt, &to, sizeof to);
    }
    std::memcpy(to, name.data(), name.size());
    size_ = static_cast<std::uint8_t>(name.size());
  }
  void clear() {
    if (size_ > bytes_.size()) delete[] outside();
    size_ = 0;
  }
  std::string_view view() const {
    return {size_ > bytes_.size() ? outside() : bytes_.data(), size_};
  }

 private:
  static constexpr std::size_t kPointerAt = 7;  // aligned: the bytes start at 1

  const char* outside() const {
    const char* at = nullptr;
    std::memcpy(&at, bytes_.data() + kPointerAt, sizeof at);
    return at;
  }

  alignas(8) std::uint8_t size_ = 0;
  std::array<char, 15> bytes_;  // not initialised: only the first size_ are used
};
static_assert(sizeof(ResourceName) == 16);

}  // namespace weir::lock
