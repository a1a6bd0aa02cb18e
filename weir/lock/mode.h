// SPDX-License-Identifier: Apache-2.0
//
// The six modes of a lock, as in the lock managers of VMS, Linux (dlm) and Lustre (LDLM). Two locks
// of a resource are held together if their modes are compatible:
//
//                          null  c.read  c.write  shared  p.write  exclusive
//   null              NL    yes   yes      yes      yes     yes       yes
//   concurrent-read   CR    yes   yes      yes      yes     yes        -
//   concurrent-write  CW    yes   yes      yes       -       -         -
//   shared            PR    yes   yes       -       yes      -         -
//   protected-write   PW    yes   yes       -        -       -         -
//   exclusive         EX    yes    -        -        -       -         -
//
// `shared` is the protected read of the others. A mode covers another if it excludes at least as
// much: whoever holds it may act as a holder of the other. Concurrent-write and shared do not cover
// each other; protected-write covers both.
//
// Pure values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weir::lock {

enum class Mode : std::uint8_t {
  kNull,
  kConcurrentRead,
  kConcurrentWrite,
  kShared,
  kProtectedWrite,
  kExclusive
};
inline constexpr std::size_t kModes = 6;
inline constexpr std::array<Mode, kModes> kAllModes = {
    Mode::kNull,   Mode::kConcurrentRead, Mode::kConcurrentWrite,
    Mode::kShared, Mode::kProtectedWrite, Mode::kExclusive};

// One bit for each mode.
using ModeSet = std::uint8_t;
constexpr ModeSet set_of(Mode mode) {
  return static_cast<ModeSet>(1U << static_cast<unsigned>(mode));
}

// The modes that cannot be held beside this one.
constexpr ModeSet conflicts_of(Mode mode) {
  constexpr std::array<ModeSet, kModes> kConflicts = {0b000000, 0b100000, 0b111000,
                                                      0b110100, 0b111100, 0b111110};
  return kConflicts[static_cast<std::size_t>(mode)];
}
constexpr bool conflict(Mode a, Mode b) { return (conflicts_of(a) & set_of(b)) != 0; }
constexpr bool covers(Mode mode, Mode other) {
  return (conflicts_of(other) & ~conflicts_of(mode)) == 0;
}

// How many locks of a resource are held in each mode. Null locks exclude nothing and are not
// counted, so that the counts fit into 20 bytes.
class ModeCounts {
 public:
  void add(Mode mode) {
    if (mode != Mode::kNull) ++counts_[at(mode)];
  }
  void remove(Mode mode) {
    if (mode != Mode::kNull) --counts_[at(mode)];
  }
  ModeSet modes() const {
    unsigned found = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      found |= static_cast<unsigned>(counts_[i] != 0) << (i + 1);
    }
    return static_cast<ModeSet>(found);
  }
  bool allow(Mode mode) const { return (modes() & conflicts_of(mode)) == 0; }
  // The same without one lock of the mode `held`.
  bool allow_beside(Mode held, Mode mode) const {
    ModeCounts others = *this;
    others.remove(held);
    return others.allow(mode);
  }
  // The strongest mode. REQUIRES: all counted modes are compatible with each other; then one of
  // them covers all others.
  Mode strongest() const {
    for (std::size_t i = counts_.size(); i > 0; --i) {
      if (counts_[i - 1] != 0) return static_cast<Mode>(i);
    }
    return Mode::kNull;
  }
  bool operator==(const ModeCounts&) const = default;

 private:
  static std::size_t at(Mode mode) { return static_cast<std::size_t>(mode) - 1; }
  std::array<std::uint32_t, kModes - 1> counts_{};
};

std::string_view mode_name(Mode mode);  // "null", "concurrent-read", ..., "exclusive"
// Also reads the two letters of the table, in any case: "PR".
std::optional<Mode> mode_by(std::string_view name);

}  // namespace weir::lock
