// SPDX-License-Identifier: Apache-2.0
//
// The attributes of a request when it is classified, and sets of them.
//
// A FieldSet names fields. It is the type of a tbf policy (`tbf nid`, `tbf uid+gid`, or all seven
// of Lustre: generic), which defines the fields that rules may test, and the key of a rule (`by=`),
// which defines its classes. only() keeps the fields of a set and clears the rest, so that a class
// by uid is not split by other attributes of the request:
//
//   attributes.only(rule.by())          the key of the class, to be compared and hashed whole
//
// An empty set clears everything: one class for the whole rule.
//
// Two fields are Weir's own. They are never part of a type; rules of any type may use them:
//
//   export      the export that the request is for; a condition or a key
//   subnet/N    the first N bits of the client's address; a key only, since conditions on nid can
//               name networks. A set has at most one, and none if it has nid
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "weir/base/hash.h"
#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/classify/export_name.h"
#include "weir/classify/mistake.h"
#include "weir/classify/nid.h"

namespace weir {

enum class Field : std::uint8_t {
  kJobid,
  kNid,
  kOpcode,
  kUid,
  kGid,
  kProjid,
  kNodemap,
  kExport,
  kSubnet,
};
inline constexpr unsigned kFields = 9;
inline constexpr unsigned kLustreFields = 7;  // the first ones

// Its name in rules: jobid, nid, opcode, uid, gid, projid, nodemap, export, subnet.
std::string_view field_name(Field field);

class FieldSet {
 public:
  // The longest type argument, as on a Lustre server.
  static constexpr std::size_t kTypeMax = 15;
  // Bits of an IPv6 address; those beyond 32 of an IPv4 address do not exist.
  static constexpr unsigned kSubnetMax = 128;

  constexpr FieldSet() = default;
  // REQUIRES: without kSubnet, which has a length.
  constexpr FieldSet(std::initializer_list<Field> fields) {
    for (const Field field : fields) bits_ = static_cast<std::uint16_t>(bits_ | bit(field));
  }
  // All fields of Lustre.
  static constexpr FieldSet generic() {
    FieldSet set;
    set.bits_ = (1U << kLustreFields) - 1;
    return set;
  }
  // REQUIRES: length is from 1 to kSubnetMax.
  static constexpr FieldSet subnet(unsigned length) {
    FieldSet set;
    set.bits_ = bit(Field::kSubnet);
    set.subnet_length_ = static_cast<std::uint8_t>(length);
    return set;
  }

  // The argument of a tbf policy: names joined with '+', or "generic" for all of Lustre. One '+' at
  // the end is tolerated, as on a Lustre server; EINVAL for an empty one in the middle, above
  // kTypeMax and for fields of Weir.
  static Result<FieldSet> parse_type(std::string_view text);
  // Names joined with '+' without a limit of length, or "generic"; for `by=`.
  static Parsed<FieldSet> read(std::string_view text);

  // Joined with '+' in the order of Field. The type generic prints as "", as such a policy is
  // shown.
  std::string print_type() const;

  constexpr bool has(Field field) const { return (bits_ & bit(field)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr unsigned size() const { return static_cast<unsigned>(std::popcount(bits_)); }
  // N of subnet/N. REQUIRES: has kSubnet.
  constexpr unsigned subnet_length() const { return subnet_length_; }
  // REQUIRES: not empty.
  constexpr Field first() const { return static_cast<Field>(std::countr_zero(bits_)); }
  // The fields of both. A longer subnet tells more than a shorter one, and nid more than both.
  constexpr FieldSet operator|(FieldSet other) const {
    FieldSet set;
    set.bits_ = static_cast<std::uint16_t>(bits_ | other.bits_);
    set.subnet_length_ = std::max(subnet_length_, other.subnet_length_);
    if (!set.has(Field::kNid)) return set;
    set.bits_ = static_cast<std::uint16_t>(set.bits_ & ~bit(Field::kSubnet));
    set.subnet_length_ = 0;
    return set;
  }
  constexpr bool operator==(const FieldSet&) const = default;

 private:
  static constexpr std::uint16_t bit(Field field) {
    return static_cast<std::uint16_t>(1U << static_cast<unsigned>(field));
  }

  std::uint16_t bits_ = 0;
  std::uint8_t subnet_length_ = 0;
};

// The id of a field that a request does not have, as on a Lustre server.
inline constexpr std::uint32_t kUnknownId = 0xFFFF'FFFF;

struct Attributes {
  JobId job;
  Nid nid;
  std::uint32_t opcode = kUnknownId;
  std::uint32_t uid = kUnknownId;
  std::uint32_t gid = kUnknownId;
  std::uint32_t projid = kUnknownId;
  std::uint32_t nodemap = kUnknownId;  // the id of the client's nodemap
  ExportName export_name;

  // These fields; the others are zero or empty.
  Attributes only(FieldSet fields) const;

  bool operator==(const Attributes&) const = default;

  // The same in every run and on every machine.
  std::uint64_t hash() const {
    const std::uint64_t ids =
        hash_words(std::uint64_t{opcode} << 32 | uid, std::uint64_t{gid} << 32 | projid) ^
        nodemap * kHashKeys[2];
    const std::uint64_t named = export_name.empty() ? 0 : export_name.hash();
    return hash_fold(job.hash() ^ kHashKeys[3], nid.hash() ^ std::rotl(ids, 29)) ^ named;
  }
};

static_assert(sizeof(Attributes) == 112);
static_assert(std::is_trivially_copyable_v<Attributes>);

}  // namespace weir

template <>
struct std::hash<weir::Attributes> {
  std::size_t operator()(const weir::Attributes& attributes) const noexcept {
    return attributes.hash();
  }
};
