// SPDX-License-Identifier: Apache-2.0
//
// No observation may end the driver: rounds and glances with any counts, rules and times. Every
// byte of the input is a choice; the rules in force are those that the controller asked for, unless
// the input says that others changed them. Checked of every answer: rates that a server
// accepts, and each job at most once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "weir/adapt/rule_controller.h"
#include "weir/base/assert.h"

namespace {

using namespace weir;

constexpr std::uint64_t kJobs = 6;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  bool is_empty() const { return left_ == 0; }
  std::uint64_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  // Small numbers, powers of two and what is beside them, up to 2^64 - 1.
  std::uint64_t number() {
    const std::uint64_t first = byte();
    if (first < 128) return first;
    return (std::uint64_t{1} << (first % 64)) - 1 + byte() % 3;
  }
  // From a clock that stands still or steps back a little to one that was stopped for years.
  Nanoseconds step() {
    const std::uint64_t first = byte();
    if (first < 200) return std::chrono::milliseconds{first / 4};
    if (first < 210) return -std::chrono::milliseconds{10};
    return Nanoseconds{std::int64_t{1} << (first % 58)};
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

JobId job_of(std::uint64_t number) { return JobId("job" + std::to_string(number % kJobs)); }

RuleController::Options options_of(Input& input) {
  RuleController::Options options;
  const std::uint64_t choice = input.byte();
  if (choice % 2 == 1) options.mode = RuleController::Mode::kPaper;
  if (choice % 4 >= 2) options.capacity = Rate(Tokens{input.number() | 1}, Nanoseconds{1'000'000});
  options.period = std::chrono::milliseconds{1 + input.byte() * 39};
  options.cpts = static_cast<std::uint32_t>(input.number());
  options.depth = static_cast<std::uint32_t>(input.number());
  options.jobs_max = 1 + input.byte() % 8;
  return options;
}

RuleRound round_of(Input& input, Instant now, const std::vector<RuleSeen>& rules) {
  RuleRound round;
  round.at = now;
  round.queued = input.number();
  if (const std::uint64_t choice = input.byte(); choice % 3 > 0) {
    round.served_all = Tokens{input.number()};
  }
  for (std::uint64_t i = 0; i < kJobs; ++i) {
    const std::uint64_t choice = input.byte();
    if (choice % 4 == 0) continue;
    round.jobs.push_back({job_of(i), Tokens{input.number()}, choice % 4 != 1, choice % 16 != 3});
  }
  round.rules = rules;
  return round;
}

void check(const std::vector<JobRateChange>& changes, std::vector<RuleSeen>& rules) {
  std::set<JobId> seen;
  for (const JobRateChange& change : changes) {
    WEIR_ASSERT(seen.insert(change.job).second);
    WEIR_ASSERT(!change.rate || (*change.rate >= 1 && *change.rate <= RuleController::kRateMax));
    apply_to(rules, change);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  RuleController controller(options_of(input));
  Instant now{};
  std::vector<RuleSeen> rules;
  while (!input.is_empty()) {
    // The clock of a machine never gets there.
    if (now < instant_at(INT64_MAX / 4)) now = std::max(now + input.step(), Instant{});
    const std::uint64_t choice = input.byte();
    if (choice % 8 == 0) {
      (void)controller.set_nodes(job_of(input.byte()), input.number());
    } else if (choice % 8 == 1) {
      controller.forget_nodes(job_of(input.byte()));
    } else if (choice % 8 == 2) {
      // Somebody else has changed a rule, started or stopped it; its rate may be 0.
      const auto rate = static_cast<std::uint32_t>(input.number());
      const bool stops = rate % 5 == 0;
      apply_to(rules, {job_of(input.byte()), stops ? std::nullopt : std::optional(rate), ""});
      for (RuleSeen& rule : rules) rule.reach = static_cast<std::uint32_t>(input.byte() % 5);
    } else if (choice % 8 < 5) {
      const RuleGlance glance{now, input.number(), input.number()};
      check(controller.glance(glance), rules);
    } else {
      check(controller.decide(round_of(input, now, rules)), rules);
    }
  }
  return 0;
}
