// SPDX-License-Identifier: Apache-2.0
//
// The limits of a rule, key by key as an administrator gave them:
//
//   rate=N         operations a second, 1 ... 999,999; 10,000 if neither rate nor bps is given
//   bps=SIZE[/s]   bytes a second; without rate= it is the only limit
//   burst=N        depth of the bucket of the rate, in tokens
//   burst=SIZE     depth of the bucket of bytes; needs bps
//   reserve=N      operations a second, or with a unit bytes a second, that each class gets before
//                  others; 0: none
//   weight=N       weight of the job's share, instead of its nodes
//   cost=          tokens of the rate a request takes: op (one), bytes (one a byte), affine:A:B
//                  (A, and B for each KiB, rounded up); at least one
//   scope=         where the limit holds: local, on this server; cluster, on all servers
//   realtime=1     dispatch before other classes, within its rate
//
// RuleKeys are the keys of one command, Limits the resulting limits. The table in rule_keys.cc has
// one row for each key.
//
// Values only: the scheduler creates the buckets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/classify/attributes.h"

namespace weir {

inline constexpr std::uint32_t kRateMax = 999'999;
inline constexpr std::uint32_t kDefaultRate = 10'000;
// 31 years of the slowest rate.
inline constexpr std::uint64_t kBurstTokensMax = 1'000'000'000;
inline constexpr std::uint32_t kWeightMax = 1'000'000;
inline constexpr unsigned kLayers = 4;  // layer=0 ... 3

class Cost {
 public:
  enum class Kind : std::uint8_t { kOp, kBytes, kAffine };

  constexpr Cost() = default;
  static constexpr Cost op() { return {}; }
  static constexpr Cost bytes() { return {Kind::kBytes, 0, 0}; }
  static constexpr Cost affine(std::uint32_t base, std::uint32_t per_kib) {
    return {Kind::kAffine, base, per_kib};
  }

  constexpr Kind kind() const { return kind_; }
  // Of kAffine.
  constexpr std::uint32_t base() const { return base_; }
  constexpr std::uint32_t per_kib() const { return per_kib_; }
  // Never 0, so that no request is free of a limit.
  Tokens of(Bytes size) const { return kind_ == Kind::kOp ? Tokens{1} : of_size(size); }
  // Of a request that amounts to several operations. REQUIRES: operations > 0.
  Tokens of(Bytes size, std::uint64_t operations) const {
    const std::uint64_t each = kind_ == Kind::kOp ? 1 : base_;
    return of(size) + Tokens{each * (operations - 1)};
  }
  // As in commands: "op", "bytes", "affine:1:2".
  std::string print() const;

  constexpr bool operator==(const Cost&) const = default;

 private:
  constexpr Cost(Kind kind, std::uint32_t base, std::uint32_t per_kib)
      : kind_(kind), base_(base), per_kib_(per_kib) {}

  Tokens of_size(Bytes size) const;

  Kind kind_ = Kind::kOp;
  std::uint32_t base_ = 0;
  std::uint32_t per_kib_ = 0;
};

enum class Scope : std::uint8_t { kLocal, kCluster };

// What each class of a rule gets before others: tokens of the rule's cost, or bytes.
struct Reserve {
  Rate rate;
  bool in_bytes = false;

  // As in commands: "500", "10MiB/s".
  std::string print() const;
  bool operator==(const Reserve&) const = default;
};

struct Limits {
  std::optional<std::uint32_t> rate;  // as given; see rate_in_force()
  std::optional<Rate> bps;
  std::optional<Tokens> burst_ops;
  std::optional<Bytes> burst_bytes;
  std::optional<Reserve> reserve;
  std::optional<std::uint32_t> weight;
  Cost cost;
  Scope scope = Scope::kLocal;
  bool realtime = false;

  // Operations per second; 0 if only bytes are limited.
  std::uint32_t rate_in_force() const { return rate ? *rate : bps ? 0 : kDefaultRate; }

  // EINVAL for a burst in bytes without bps, a burst in tokens without a rate, or a burst that
  // would take more than 100 years to fill.
  // The same for a reservation above a limit, or of a cluster.
  Result<void> check() const;

  // "rate=100 bps=1000000 burst=9", for display: bytes per second without a unit.
  std::string summary() const;

  bool operator==(const Limits&) const = default;
};

// The given keys; others stay unchanged.
struct RuleKeys {
  std::optional<std::uint32_t> rate;
  std::optional<Rate> bps;
  std::optional<Tokens> burst_ops;
  std::optional<Bytes> burst_bytes;
  std::optional<std::optional<Reserve>> reserve;  // reserve=0: none from now on
  std::optional<std::uint32_t> weight;
  std::optional<Cost> cost;
  std::optional<Scope> scope;
  std::optional<bool> realtime;  // for start only: change ignores it, as on a Lustre server
  std::optional<FieldSet> by;    // empty: by=rule
  std::optional<std::uint8_t> layer;
  std::optional<std::string> rank;  // the name of the rule to be placed before

  bool operator==(const RuleKeys&) const = default;
};

}  // namespace weir
