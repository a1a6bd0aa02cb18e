// SPDX-License-Identifier: Apache-2.0
//
// A read-only view of a policy with rules (rule_engine.h): its rules, its classes with their
// buckets, the causes of waits, and what classes could use of cluster-wide limits.
//
// References and views passed to a visitor are valid during the visit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/account/request_record.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/rule.h"
#include "weir/classify/rule_list.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/request.h"

namespace weir {

// Requests of a class served since it was created.
struct ClassTotals {
  void start(const RequestRecord& record) {
    ++served;
    bytes += record.charged.count();
    waited_ns += static_cast<std::uint64_t>(record.waited().count());
  }
  ClassTotals& operator+=(const ClassTotals& more) {
    served += more.served;
    bytes += more.bytes;
    waited_ns += more.waited_ns;
    return *this;
  }

  std::uint64_t served = 0;
  std::uint64_t bytes = 0;
  std::uint64_t waited_ns = 0;  // from admit to dispatch
};

// The cause of a wait.
enum class Delay : std::uint8_t {
  kLimit,  // tokens of a rule's bucket, or other requests before it there
  kShare,  // tokens of its job's share
  kRoot,   // first in order, while the target was at its rate
  kSlot,   // first in order, while the device had no free slot
  kOrder,  // requests of others that go first
};
inline constexpr std::size_t kDelays = 5;
using DelaySums = std::array<std::uint64_t, kDelays>;  // in request nanoseconds
std::string_view delay_name(Delay delay);

// A class at this moment.
struct ClassView {
  const Rule& rule;
  Attributes key;            // only the fields of rule.by(); empty for an overflow class
  bool is_overflow = false;  // shared by classes beyond classes_max
  std::optional<BucketShape> ops;
  std::optional<BucketShape> bytes;
  Tokens ops_level{};
  Tokens bytes_level{};
  std::optional<BucketShape> reserve = {};  // of a reservation, as scaled now
  bool reserves_bytes = false;
  Tokens reserve_level{};
  ClassTotals totals{};
};

// The causes of the waits of one queue, since it was last idle.
struct WaitView {
  Attributes key;  // only the fields that distinguish queues
  Head head = Head::kRegular;
  std::uint32_t waiting = 0;
  std::uint64_t left = 0;  // requests that were dispatched or withdrawn since `begun`
  Instant begun{};
  DelaySums delays{};  // up to now, of dispatched and of waiting requests
};

// Requests of a class of a rule with scope=cluster: served since it was created, and waiting in its
// queues. In tokens of the rule's cost, and in bytes.
struct ClassLoad {
  std::string rule;
  Attributes key;            // only the fields of the rule's by
  bool is_overflow = false;  // shared by classes beyond classes_max
  std::uint64_t served = 0;
  std::uint64_t served_bytes = 0;
  std::uint64_t waiting = 0;
  std::uint64_t waiting_bytes = 0;

  ClassLoad& operator+=(const ClassLoad& more) {
    served += more.served;
    served_bytes += more.served_bytes;
    waiting += more.waiting;
    waiting_bytes += more.waiting_bytes;
    return *this;
  }
};

class RuleView {
 public:
  RuleView() = default;
  RuleView(const RuleView&) = delete;
  RuleView& operator=(const RuleView&) = delete;
  virtual ~RuleView() = default;

  // The fields that rules may use.
  virtual FieldSet type() const = 0;
  virtual const RuleList& rules(Head head) const = 0;
  // Whether the rule `default` limits requests: under shares not before its limits were changed.
  virtual bool limits_by_default() const = 0;

  virtual std::size_t classes() const = 0;
  virtual std::size_t queues() const = 0;
  // Requests that shared the overflow class because no class could be created.
  virtual std::uint64_t overflowed() const = 0;
  // Visits classes from a position on, up to `count` positions, and returns the position to
  // continue from; none at the end. Classes that are added or removed between two calls may
  // be missed.
  virtual std::optional<std::size_t> visit_classes(
      std::size_t from, std::size_t count, Instant now,
      const std::function<void(const ClassView&)>& visit) const = 0;
  // The fraction of all reservations that holds, in billionths.
  virtual std::uint32_t reserve_scale() const = 0;
  virtual void visit_waits(Instant now,
                           const std::function<void(const WaitView&)>& visit) const = 0;

  // Waiting requests count up to what the whole limit allows in `time`.
  virtual std::vector<ClassLoad> cluster_loads(Nanoseconds time) const = 0;
  // Number of queues of a group of clients with requests, on the regular head.
  virtual std::uint32_t group_queues(std::uint32_t group) const = 0;
};

}  // namespace weir
