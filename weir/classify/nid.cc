// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/nid.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/number.h"

namespace weir {
namespace {

struct Net {
  NetType type;
  std::string_view name;
  AddressFamily family;  // kIpv4 means both kinds of IP
};

constexpr Net kNets[] = {
    {NetType::kLo, "lo", AddressFamily::kNumber},
    {NetType::kTcp, "tcp", AddressFamily::kIpv4},
    {NetType::kO2ib, "o2ib", AddressFamily::kIpv4},
    {NetType::kGip, "gip", AddressFamily::kIpv4},
    {NetType::kEfa, "efa", AddressFamily::kIpv4},
    {NetType::kGni, "gni", AddressFamily::kNumber},
    {NetType::kPtlf, "ptlf", AddressFamily::kNumber},
    {NetType::kKfi, "kfi", AddressFamily::kNumber},
    {NetType::kBxi3f, "bxi3f", AddressFamily::kNumber},
};
constexpr const char* kNetHint =
    "expected tcp, o2ib, gip, efa, lo, gni, ptlf, kfi or bxi3f, optionally with a number";
constexpr const char* kNidHint = "expected ADDRESS@NETWORK such as 10.0.0.1@tcp";

struct Ipv6 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};

using Groups = std::array<std::uint16_t, 8>;

std::optional<std::uint16_t> read_group(std::string_view text) {
  if (text.empty() || text.size() > 4) return std::nullopt;
  const auto number = read_number("0x" + std::string(text));
  if (!number) return std::nullopt;
  return static_cast<std::uint16_t>(*number);
}

// The last 32 bits of an IPv6 address may be written as an IPv4 address, in plain decimals.
std::optional<std::uint32_t> read_dotted(std::string_view text) {
  std::uint32_t address = 0;
  for (int part = 0; part < 4; ++part) {
    const std::size_t end = part < 3 ? text.find('.') : text.size();
    if (end == std::string_view::npos) return std::nullopt;
    const auto number = read_decimal(text.substr(0, end));
    if (!number || *number > 255) return std::nullopt;
    address = address << 8 | static_cast<std::uint32_t>(*number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return address;
}

Ipv6 join(const Groups& groups) {
  Ipv6 address;
  for (std::size_t i = 0; i < 4; ++i) {
    address.high = address.high << 16 | groups[i];
    address.low = address.low << 16 | groups[i + 4];
  }
  return address;
}

std::optional<Ipv6> read_ipv6(std::string_view text) {
  Groups groups{};
  std::size_t count = 0;
  std::optional<std::size_t> gap;  // groups before "::"
  if (text.starts_with("::")) {
    gap = 0;
    text.remove_prefix(2);
  }
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(':'), text.size());
    const std::string_view token = text.substr(0, end);
    text.remove_prefix(end);
    if (const bool dotted = token.find('.') != std::string_view::npos; dotted) {
      const auto address = read_dotted(token);
      if (!address || !text.empty() || count > 6) return std::nullopt;
      groups[count++] = static_cast<std::uint16_t>(*address >> 16);
      groups[count++] = static_cast<std::uint16_t>(*address);
      break;
    }
    const auto group = read_group(token);
    if (!group || count == 8) return std::nullopt;
    groups[count++] = *group;
    if (text.starts_with("::")) {
      if (gap) return std::nullopt;
      gap = count;
      text.remove_prefix(2);
    } else if (!text.empty()) {
      text.remove_prefix(1);
      if (text.empty()) return std::nullopt;
    }
  }
  if (gap ? count > 7 : count != 8) return std::nullopt;
  if (gap) {
    std::rotate(groups.begin() + static_cast<std::ptrdiff_t>(*gap),
                groups.begin() + static_cast<std::ptrdiff_t>(count), groups.end());
  }
  return join(groups);
}

std::string print_ipv6(std::uint64_t high, std::uint64_t low) {
  Groups groups;
  for (std::size_t i = 0; i < 4; ++i) {
    groups[i] = static_cast<std::uint16_t>(high >> (48 - 16 * i));
    groups[i + 4] = static_cast<std::uint16_t>(low >> (48 - 16 * i));
  }
  std::size_t gap = 8;  // the first of the longest runs of two zeros or more
  std::size_t gap_size = 1;
  for (std::size_t i = 0; i < 8; ++i) {
    std::size_t size = 0;
    while (i + size < 8 && groups[i + size] == 0) ++size;
    if (size > gap_size) {
      gap = i;
      gap_size = size;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) {
    if (i == gap) {
      text += "::";
      i += gap_size - 1;
      continue;
    }
    if (!text.empty() && !text.ends_with(':')) text += ':';
    fmt::format_to(std::back_inserter(text), "{:x}", groups[i]);
  }
  return text;
}

// The length of an address, or 0 if it is a number.
constexpr unsigned bits_of(AddressFamily family) {
  return family == AddressFamily::kIpv4 ? 32 : family == AddressFamily::kIpv6 ? 128 : 0;
}

// The highest `bits` of `width`, which is 32 or 64.
std::uint64_t mask_of(unsigned bits, unsigned width) {
  if (bits == 0) return 0;
  const std::uint64_t all = width == 64 ? UINT64_MAX : (std::uint64_t{1} << width) - 1;
  return all & ~(bits >= width ? 0 : all >> bits);
}

}  // namespace

// Parses ranges one by one into a list. Positions of errors are those of the parts in the text.
class NidListReader {
 public:
  explicit NidListReader(std::string_view text) : text_(text) {}

  Parsed<NidList> read() {
    for (std::size_t at = text_.find_first_not_of(' '); at != std::string_view::npos;) {
      const std::size_t end = std::min(text_.find(' ', at), text_.size());
      if (auto done = read_range(text_.substr(at, end - at)); !done) {
        return tl::unexpected(std::move(done.error()));
      }
      at = text_.find_first_not_of(' ', end);
    }
    if (list_.ranges_.empty()) return mistake(0, "an empty list of NIDs", kNidHint);
    list_.text_ = text_;
    return std::move(list_);
  }

  Parsed<Nid> read_one() {
    if (const std::size_t at = text_.find_first_of("*[]/ "); at != std::string_view::npos) {
      return mistake(at, quote(text_) + " is not a single NID", kNidHint);
    }
    if (auto done = read_range(text_); !done) return tl::unexpected(std::move(done.error()));
    const NidList::Range& range = list_.ranges_.front();
    return Nid{range.high, range.low, range.net_number, range.net, range.family};
  }

 private:
  using Range = NidList::Range;
  using Kind = NidList::Kind;
  using Done = Parsed<void>;

  std::size_t at(std::string_view part) const {
    return static_cast<std::size_t>(part.data() - text_.data());
  }
  tl::unexpected<Mistake> refuse(std::string_view part, std::string_view what,
                                 std::string_view hint) const {
    return mistake(at(part), fmt::format("{} {}", quote(part), what), std::string(hint));
  }

  Done read_range(std::string_view text) {
    const std::size_t sign = text.find('@');
    if (sign == std::string_view::npos) return refuse(text, "has no @ and network", kNidHint);
    const std::string_view address = text.substr(0, sign);
    const std::string_view net_text = text.substr(sign + 1);
    if (const std::size_t second = net_text.find('@'); second != std::string_view::npos) {
      return refuse(net_text.substr(second), "names a second network", "separate NIDs with spaces");
    }
    Range range{};
    const Net* net = nullptr;
    if (auto done = read_net(net_text, net, range); !done) return done;
    if (address.empty()) return refuse(text, "has no address before the @", kNidHint);
    if (address == "*") {
      range.kind = Kind::kAll;
    } else {
      const bool numeric = net->family == AddressFamily::kNumber;
      if (auto done = numeric ? read_numeric(address, range) : read_ip(address, range); !done) {
        return done;
      }
    }
    list_.ranges_.push_back(range);
    return {};
  }

  Done read_net(std::string_view text, const Net*& net, Range& range) {
    for (const Net& known : kNets) {
      if (!text.starts_with(known.name)) continue;
      const std::string_view digits = text.substr(known.name.size());
      const auto number = digits.empty() ? std::optional<std::uint64_t>(0) : read_number(digits);
      if (!number || *number > UINT32_MAX) break;
      net = &known;
      range.net = known.type;
      range.net_number = static_cast<std::uint32_t>(*number);
      return {};
    }
    return refuse(text, "is not a network", kNetHint);
  }

  Done read_ip(std::string_view text, Range& range) {
    range.kind = Kind::kMasked;
    const std::size_t bracket = text.find('[');
    if (text.find(':') != std::string_view::npos) {
      if (bracket != std::string_view::npos) {
        return refuse(text.substr(bracket), "is not allowed in an IPv6 address",
                      "write a prefix such as 2001:db8::/120");
      }
      return read_ipv6_prefix(text, range);
    }
    range.family = AddressFamily::kIpv4;
    if (bracket == std::string_view::npos && text.find('/') != std::string_view::npos) {
      return read_ipv4_prefix(text, range);
    }
    return read_octets(text, range);
  }

  // Without a "/" it is the full width.
  Parsed<unsigned> read_prefix_size(std::string_view text, std::size_t slash, unsigned width) {
    if (slash == std::string_view::npos) return width;
    const std::string_view digits = text.substr(slash + 1);
    const auto bits = read_decimal(digits);
    if (!bits || *bits < 1 || *bits > width) {
      return refuse(text.substr(slash), "is not a valid prefix length",
                    fmt::format("expected /1 to /{}", width));
    }
    return static_cast<unsigned>(*bits);
  }

  Done read_ipv6_prefix(std::string_view text, Range& range) {
    const std::size_t slash = text.find('/');
    const std::string_view digits = text.substr(0, slash);
    const auto address = read_ipv6(digits);
    if (!address)
      return refuse(digits, "is not a valid IPv6 address", "write for example 2001:db8::1");
    const auto bits = read_prefix_size(text, slash, 128);
    if (!bits) return tl::unexpected(bits.error());
    range.family = AddressFamily::kIpv6;
    range.mask_high = mask_of(std::min(*bits, 64U), 64);
    range.mask_low = mask_of(*bits > 64 ? *bits - 64 : 0, 64);
    range.high = address->high & range.mask_high;
    range.low = address->low & range.mask_low;
    return {};
  }

  Done read_ipv4_prefix(std::string_view text, Range& range) {
    const std::size_t slash = text.find('/');
    const std::string_view digits = text.substr(0, slash);
    const auto bits = read_prefix_size(text, slash, 32);
    if (!bits) return tl::unexpected(bits.error());
    if (const std::size_t star = digits.find('*'); star != std::string_view::npos) {
      return refuse(text.substr(star), "and a prefix length cannot be combined",
                    "write either 10.0.*.* or 10.0.0.0/16");
    }
    if (auto done = read_octets(digits, range); !done) return done;
    range.mask_low = mask_of(*bits, 32);
    range.low &= range.mask_low;
    return {};
  }

  // Four parts. Numbers and * become a mask; as soon as one is a list, all four become sets.
  Done read_octets(std::string_view text, Range& range) {
    NidList::Octets octets;
    bool listed = false;
    std::string_view rest = text;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t dot = rest.find('.');
      if ((dot == std::string_view::npos) != (i == 3)) {
        return refuse(text, "is not a valid IPv4 address", "expected four parts, a.b.c.d");
      }
      const std::string_view part = rest.substr(0, dot);
      if (dot != std::string_view::npos) rest.remove_prefix(dot + 1);
      range.low <<= 8;
      range.mask_low <<= 8;
      if (part == "*") {
        octets[i].set();
      } else if (part.starts_with('[')) {
        listed = true;
        if (auto done = read_steps(part, 255,
                                   [&](const NidList::Step& step) {
                                     for (std::uint32_t v = step.lo; v <= step.hi;
                                          v += std::min(step.stride, 256U)) {
                                       octets[i].set(v);
                                     }
                                   });
            !done) {
          return done;
        }
      } else {
        const auto number = read_number(part);
        if (!number || *number > 255) return refuse_part(part, 255);
        octets[i].set(*number);
        range.low |= *number;
        range.mask_low |= 255;
      }
    }
    if (!listed) return {};
    range.kind = Kind::kOctets;
    range.low = list_.octets_.size();
    list_.octets_.push_back(octets);
    return {};
  }

  Done read_numeric(std::string_view text, Range& range) {
    range.family = AddressFamily::kNumber;
    if (!text.starts_with('[')) {
      const auto number = read_number(text);
      if (!number || *number > UINT32_MAX) return refuse_part(text, UINT32_MAX);
      range.kind = Kind::kMasked;
      range.low = *number;
      range.mask_low = UINT64_MAX;
      return {};
    }
    range.kind = Kind::kSteps;
    range.low = list_.steps_.size();
    auto done = read_steps(text, UINT32_MAX,
                           [&](const NidList::Step& step) { list_.steps_.push_back(step); });
    range.mask_low = list_.steps_.size() - range.low;
    return done;
  }

  Done refuse_part(std::string_view part, std::uint32_t most) {
    if (part.find('-') != std::string_view::npos && part.find('[') == std::string_view::npos) {
      return refuse(part, "is a range without brackets", fmt::format("write [{}]", part));
    }
    return refuse(part, "is not a valid part of an address",
                  fmt::format("expected a number up to {}, * or a list such as [1-8,16]", most));
  }

  // "[" step { "," step } "]"
  template <class Take>
  Done read_steps(std::string_view text, std::uint32_t most, Take take) {
    if (!text.ends_with(']') || text.size() < 2) {
      return refuse(text, "has no ] at its end", "expected a list such as [1-8,16]");
    }
    std::string_view rest = text.substr(1, text.size() - 2);
    for (;;) {
      const std::size_t comma = rest.find(',');
      const auto step = read_step(rest.substr(0, comma), most);
      if (!step) return tl::unexpected(step.error());
      take(*step);
      if (comma == std::string_view::npos) return {};
      rest.remove_prefix(comma + 1);
    }
  }

  Parsed<NidList::Step> read_step(std::string_view text, std::uint32_t most) {
    if (text == "*") return NidList::Step{0, most, 1};
    const std::size_t dash = text.find('-');
    const std::size_t slash = text.find('/');
    const bool ranged = dash != std::string_view::npos;
    const bool strided = slash != std::string_view::npos;
    if (strided && (!ranged || slash < dash)) {
      return refuse(text, "has a stride but no range", "expected LOW-HIGH/STRIDE");
    }
    const auto lo = read_number(text.substr(0, dash));
    const auto hi =
        ranged ? read_number(text.substr(dash + 1, strided ? slash - dash - 1 : slash)) : lo;
    const auto stride = strided ? read_number(text.substr(slash + 1)) : 1;
    if (!lo || !hi || !stride || *hi > most || *stride > UINT32_MAX) {
      return refuse(text, "is not a valid list item",
                    fmt::format("expected numbers up to {}: N, LOW-HIGH or LOW-HIGH/STRIDE", most));
    }
    if (*lo > *hi) return refuse(text, "is in descending order", "write the smaller number first");
    if (*stride == 0) {
      return refuse(text, "has a stride of 0", "expected a stride of 1 or more");
    }
    return NidList::Step{static_cast<std::uint32_t>(*lo), static_cast<std::uint32_t>(*hi),
                         static_cast<std::uint32_t>(*stride)};
  }

  std::string_view text_;
  NidList list_;
};

Result<Nid> parse_nid(std::string_view text) {
  auto nid = NidListReader(text).read_one();
  if (!nid) return tl::unexpected(nid.error().to_error());
  return *nid;
}

Nid Nid::network(unsigned length) const {
  const unsigned bits = bits_of(family);
  if (length >= bits) return *this;
  Nid of = *this;
  if (bits == 32) {
    of.low &= mask_of(length, 32);
  } else {
    of.high &= mask_of(std::min(length, 64U), 64);
    of.low &= mask_of(length - std::min(length, 64U), 64);
  }
  return of;
}

std::string print_nid(const Nid& nid) {
  std::string text;
  switch (nid.family) {
    case AddressFamily::kNone:
      return "none";
    case AddressFamily::kIpv4:
      text = fmt::format("{}.{}.{}.{}", nid.low >> 24, nid.low >> 16 & 255, nid.low >> 8 & 255,
                         nid.low & 255);
      break;
    case AddressFamily::kIpv6:
      text = print_ipv6(nid.high, nid.low);
      break;
    case AddressFamily::kNumber:
      text = std::to_string(nid.low);
      break;
  }
  const Net* net = std::find_if(std::begin(kNets), std::end(kNets),
                                [&](const Net& known) { return known.type == nid.net; });
  text += '@';
  if (net != std::end(kNets)) text += net->name;
  if (nid.net_number != 0) text += std::to_string(nid.net_number);
  return text;
}

std::string print_network(const Nid& nid, unsigned length) {
  std::string text = print_nid(nid);
  if (const unsigned bits = bits_of(nid.family); bits > 0) {
    text.insert(text.find('@'), fmt::format("/{}", std::min(length, bits)));
  }
  return text;
}

Parsed<NidList> NidList::read(std::string_view text) { return NidListReader(text).read(); }

Result<NidList> NidList::parse(std::string_view text) {
  auto list = read(text);
  if (!list) return tl::unexpected(list.error().to_error());
  return std::move(*list);
}

bool NidList::holds_listed(const Range& range, const Nid& nid) const {
  if (range.kind == Kind::kOctets) {
    const Octets& octets = octets_[range.low];
    return octets[0][nid.low >> 24 & 255] && octets[1][nid.low >> 16 & 255] &&
           octets[2][nid.low >> 8 & 255] && octets[3][nid.low & 255];
  }
  for (std::uint64_t i = 0; i < range.mask_low; ++i) {
    const Step& step = steps_[range.low + i];
    if (nid.low >= step.lo && nid.low <= step.hi && (nid.low - step.lo) % step.stride == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace weir
