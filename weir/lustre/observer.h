// SPDX-License-Identifier: Apache-2.0
//
// Turns successive looks at a server into rounds: what each job was served since the last look, the
// sum over the targets. Used by the driver, and by `weir lustre record`, which only observes.
//
//   Observer observer;
//   observer.count(view, now, round);       fills everything but the rules
//   observer.cost_of(job)                   of its requests lately, in 1/RequestCosts::kOne
//
// Served is counted in tokens, which are mean requests: see request_costs.h. Kinds are the
// operations of an MDT, and the targets of a server. With one target of one kind every request is
// one token. What is less than a token is carried to the next round.
//
// An open that creates a file counts as mknod too, and is one request.
//
// What counters do on real servers:
//   they begin anew     an entry that was cleared, or expired and came back: it counts from 0
//   they go back        with the same start time: nothing is counted
//   they vanish         the job is unknown, not idle, if `keeps` says that it matters; its counters
//                       are kept as long, and for kKeepFor, so that an entry that one read missed
//                       continues
// On the first look at a target it is unknown since when its counters count: nothing is counted.
//
// No clock; one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/adapt/rule_controller.h"
#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lustre/request_costs.h"
#include "weir/lustre/server.h"

namespace weir::lustre {

struct ServedByJob {
  JobId job;
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;
};

// How it is decided what the requests of a server cost.
struct Costing {
  enum class Kind : std::uint8_t {
    kMeasured,  // the time that they take
    kEqual,     // the same
    kTable,     // of an MDT: as `operations`
  };

  Kind kind = Kind::kMeasured;
  std::array<std::uint32_t, kOperationCount> operations{};

  // Lines "OPERATION COST", 1 to 1000000; # starts a comment. What is not named costs 1.
  static Result<Costing> parse(std::string_view text);
};

class Observer {
 public:
  static constexpr Nanoseconds kKeepFor = std::chrono::minutes{1};

  using Keeps = std::function<bool(const JobId&)>;

  explicit Observer(const Service& service = kOstService, const Costing& costing = {},
                    Keeps keeps = {});

  // Sets everything in `round` but its rules.
  void count(const View& view, Instant now, RuleRound& round);

  // What jobs were served between the last two looks, as requests and bytes; those that were served
  // something, in the order of their ids.
  const std::vector<ServedByJob>& served() const { return served_; }
  // Active jobs of the last look that no rule can name.
  std::uint64_t unnamed() const { return unnamed_; }
  // 0 is never returned.
  std::uint64_t cost_of(const JobId& job) const;

 private:
  // Of all kinds of a target; an OST has one.
  using Counts = std::vector<std::uint64_t>;

  struct Last {
    Counts counts;
    std::uint64_t sum = 0;
    std::uint64_t bytes = 0;
    std::optional<std::uint64_t> since_ns;
    Instant seen_at{};
  };
  struct Target {
    std::size_t first_kind = 0;
    bool is_first = true;  // it was not looked at before
    std::map<JobId, Last> jobs;
    std::vector<RequestTotal> totals;
    std::optional<Counts> served;  // by the totals, since the last look
  };
  struct Sum {
    JobCount count;
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
    std::uint64_t cost = 0;  // in 1/RequestCosts::kOne
  };
  // Of a job whose requests do not cost a token each.
  struct Price {
    std::uint64_t requests = 0;
    std::uint64_t cost = 0;
    std::uint64_t rest = 0;  // less than a token, to be counted later
  };

  bool serves(std::size_t kind) const {
    return service_.counted == Counted::kBulk || (service_.operations >> kind & 1U) != 0;
  }
  bool is_table() const {
    return costing_.kind == Costing::Kind::kTable && service_.counted == Counted::kOperations;
  }
  std::size_t kinds() const { return service_.counted == Counted::kBulk ? 1 : kOperationCount; }
  Target& target_of(const std::string& name);
  Counts counts_of(const JobCounters& job) const;
  void drop_double(Counts& counts) const;
  void learn(const TargetView& view, Target& target);
  std::optional<Tokens> served_all(const View& view);
  void count_target(const TargetView& view, Target& target, Instant now,
                    std::map<JobId, Sum>& sums);
  Tokens tokens_of(const JobId& job, const Sum& sum);

  const Service& service_;
  Costing costing_;
  Keeps keeps_;
  RequestCosts costs_;
  std::map<std::string, Target> targets_;
  std::map<JobId, Price> prices_;
  std::uint64_t rest_ = 0;  // of the server as a whole
  std::optional<Instant> last_;
  std::vector<ServedByJob> served_;
  std::uint64_t unnamed_ = 0;
};

}  // namespace weir::lustre
