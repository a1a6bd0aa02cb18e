// SPDX-License-Identifier: Apache-2.0
//
// Network ids of LNet, the network layer below Lustre: an address and the network it is on.
//
//   192.168.1.1@tcp    fe80::1@o2ib3    0@lo    17@gni2        tcp is tcp0
//
// Networks of IP addresses are tcp, o2ib, gip and efa; of plain numbers lo, gni, ptlf, kfi and
// bxi3f. A NidList is a set of NIDs as an administrator writes it:
//
//   192.168.1.[1-128]@tcp 10.0.[0,2,8-16/4].*@o2ib1 10.1.0.0/16@tcp 2001:db8::/32@tcp *@gni
//
// A part of an address is a number, * or a list in brackets of numbers, ranges lo-hi, ranges with a
// stride lo-hi/stride, and *. Numbers are decimal, octal after a leading 0 (010 is 8, as in Lustre)
// or hexadecimal after 0x. Ranges are separated by spaces. An IPv4 range never matches an IPv6
// address, nor the other way round; *@net matches both.
//
// A list stores the ranges as written and never expands them, so its size is bounded by its text.
// matches() takes about a nanosecond per range and does not allocate.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "weir/base/hash.h"
#include "weir/base/result.h"
#include "weir/classify/mistake.h"

namespace weir {

enum class NetType : std::uint8_t {
  kNone,
  kTcp,
  kO2ib,
  kGip,
  kEfa,
  kLo,
  kGni,
  kPtlf,
  kKfi,
  kBxi3f
};
enum class AddressFamily : std::uint8_t { kNone, kIpv4, kIpv6, kNumber };

struct Nid {
  std::uint64_t high = 0;  // of an IPv6 address
  std::uint64_t low = 0;   // of an IPv6 address; the whole of other addresses
  std::uint32_t net_number = 0;
  NetType net = NetType::kNone;
  AddressFamily family = AddressFamily::kNone;

  bool operator==(const Nid&) const = default;

  // The first `length` bits of an IP address; the others are 0. Numbers have no subnets: the same.
  Nid network(unsigned length) const;

  std::uint64_t hash() const {
    const std::uint64_t where = std::uint64_t{net_number} << 16 |
                                static_cast<std::uint64_t>(net) << 8 |
                                static_cast<std::uint64_t>(family);
    return hash_words(high, low) ^ where * kHashKeys[2];
  }
};

static_assert(sizeof(Nid) == 24);
static_assert(std::is_trivially_copyable_v<Nid>);

// One address on one network, without *, brackets or a prefix.
Result<Nid> parse_nid(std::string_view text);

// parse_nid() reads the result as the same NID: tcp for tcp0, IPv6 in its shortest form (RFC 5952).
// The empty NID prints as "none", which does not parse.
std::string print_nid(const Nid& nid);
// As a range of NidList: "10.1.2.0/24@tcp". REQUIRES: nid is a network() of this length.
std::string print_network(const Nid& nid, unsigned length);

class NidList {
 public:
  // One or more ranges. An error names the column in the text.
  static Result<NidList> parse(std::string_view text);
  // The same for parsers of a larger text.
  static Parsed<NidList> read(std::string_view text);

  bool matches(const Nid& nid) const {
    for (const Range& range : ranges_) {
      if (range.net == nid.net && range.net_number == nid.net_number && holds(range, nid)) {
        return true;
      }
    }
    return false;
  }

  // The number of ranges.
  std::size_t size() const { return ranges_.size(); }
  // As it was written.
  const std::string& text() const { return text_; }

  // The same ranges in the same order; lists that match the same NIDs may differ.
  bool operator==(const NidList& other) const {
    return ranges_ == other.ranges_ && octets_ == other.octets_ && steps_ == other.steps_;
  }

 private:
  friend class NidListReader;

  enum class Kind : std::uint8_t { kAll, kMasked, kOctets, kSteps };
  struct Range {
    NetType net;
    AddressFamily family;
    Kind kind;
    std::uint32_t net_number;
    // kMasked: address bits and a mask of the significant ones. Others: low is the first index in
    // octets_ or steps_, mask_low the number of entries.
    std::uint64_t high;
    std::uint64_t low;
    std::uint64_t mask_high;
    std::uint64_t mask_low;

    bool operator==(const Range&) const = default;
  };
  // lo, lo + stride ... up to hi.
  struct Step {
    std::uint32_t lo;
    std::uint32_t hi;
    std::uint32_t stride;

    bool operator==(const Step&) const = default;
  };
  using Octets = std::array<std::bitset<256>, 4>;

  bool holds(const Range& range, const Nid& nid) const {
    if (range.kind == Kind::kAll) return true;
    if (range.family != nid.family) return false;
    if (range.kind == Kind::kMasked) {
      return (((nid.high ^ range.high) & range.mask_high) |
              ((nid.low ^ range.low) & range.mask_low)) == 0;
    }
    return holds_listed(range, nid);
  }
  bool holds_listed(const Range& range, const Nid& nid) const;

  std::string text_;
  std::vector<Range> ranges_;
  std::vector<Octets> octets_;  // the allowed values of each part of an IPv4 address
  std::vector<Step> steps_;     // of numeric addresses
};

}  // namespace weir

template <>
struct std::hash<weir::Nid> {
  std::size_t operator()(const weir::Nid& nid) const noexcept { return nid.hash(); }
};
