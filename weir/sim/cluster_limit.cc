// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/cluster_limit.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/classify/rule_spec.h"
#include "weir/coordinate/rule_gauge.h"
#include "weir/target/target.h"

namespace weir::sim {
namespace {

constexpr const char* kRule = "wide";
constexpr Nanoseconds kBin = std::chrono::milliseconds{10};
constexpr Nanoseconds kBegin = std::chrono::seconds{1};
constexpr std::size_t kCoarse = 10;  // bins in an interval of the report
constexpr Nanoseconds kService = std::chrono::microseconds{500};
constexpr std::uint32_t kSlots = 64;

// Requests served by all servers together.
struct Tally {
  std::vector<Bin> bins;
  std::vector<std::vector<std::uint64_t>> servers;  // served, by server and bin
  Quantiles wait;
  Quantiles latency;
  std::uint64_t arrived = 0;
  std::uint64_t served = 0;
  std::optional<std::size_t> dead;  // a server that the hot spot avoids
};

// 3, or the next number that has no common divisor with the number of servers.
std::size_t stride(std::size_t servers) {
  std::size_t stride = 3;
  while (std::gcd(stride, servers) != 1) ++stride;
  return stride;
}

Target::Options target_options() {
  Target::Options options;
  options.gate = {.slots = kSlots, .rules = {.in_cluster = true}};
  return options;
}

// The load of a server: a hot spot in its turn, and always a trickle.
class Traffic final : public ServerLoad {
 public:
  Traffic(const ClusterSpec& spec, std::size_t server, Tally& tally)
      : spec_(spec),
        server_(server),
        tally_(tally),
        target_(target_options(), instant_at(0)),
        gauge_(kRule, instant_at(0)) {
    RuleSpec rule{.name = std::string(kRule), .conds = conds_for_all_jobs()};
    rule.keys.rate = static_cast<std::uint32_t>(spec.limit);
    rule.keys.by = FieldSet{};
    rule.keys.scope = Scope::kCluster;
    const bool started = target_.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)) &&
                         target_.apply_rule(start_of(std::move(rule)), instant_at(0));
    WEIR_ASSERT(started);
  }
  ~Traffic() override {
    (void)target_.apply_rule(stop_of(std::string(kRule)),
                             last_);  // otherwise its limit would apply
    target_.shutdown(last_);
    while (!running_.empty()) finish_first(kNoMore);
    while (step(last_, kNoMore)) finish_first(kNoMore);
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  std::uint64_t served() const { return served_; }

  // Or was until just now, and may still hold the slice.
  bool is_busy(Instant now) const override {
    return is_hot(now) || is_hot(now - std::chrono::milliseconds{500});
  }
  std::int64_t demand(Instant now) override {
    return gauge_.measure(*target_.rules(Head::kRegular), now).ops;
  }
  void set_slice(std::int64_t slice, Instant now) override {
    const Rate rate(Tokens{static_cast<std::uint64_t>(slice)}, std::chrono::seconds{kMilli});
    const ClassSlice one{.rule = kRule, .key = std::nullopt, .slice = {.ops = rate, .bytes = {}}};
    target_.set_slices({&one, 1}, now);
  }
  Instant run(Instant now) override {
    last_ = now;
    while (!running_.empty() && running_.top().at <= now) finish_first(kSendMore);
    arrive(now);
    while (step(now, kSendMore)) {
    }
    Instant next = wait_until_;
    if (!running_.empty()) next = std::min(next, running_.top().at);
    return std::min({next, trickle_at_, next_turn(now)});
  }

 private:
  enum class More : std::uint8_t { kSend, kNone };
  static constexpr More kSendMore = More::kSend;
  static constexpr More kNoMore = More::kNone;
  struct Running {
    Instant at;
    std::uint64_t order;
    Request* request;
    bool operator<(const Running& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  bool is_hot(Instant now) const {
    const auto turn = static_cast<std::uint64_t>(ns_of(now) / spec_.move_every.count());
    // A stride that visits all servers, and never adjacent ones in succession.
    const std::size_t hot = turn * stride(spec_.servers) % spec_.servers;
    return (tally_.dead == hot ? (hot + 1) % spec_.servers : hot) == server_;
  }
  Instant next_turn(Instant now) const {
    return instant_at((ns_of(now) / spec_.move_every.count() + 1) * spec_.move_every.count());
  }
  void admit(Instant now) {
    if (free_.empty()) free_.push_back(&requests_.emplace_back());
    Request& request = *free_.back();
    free_.pop_back();
    ++tally_.arrived;
    ++outstanding_;
    target_.admit(request, Head::kRegular, now);
  }
  void arrive(Instant now) {
    while (is_hot(now) && outstanding_ < spec_.window) admit(now);
    if (trickle_at_ <= now) {
      trickle_at_ = now + spec_.trickle;
      if (outstanding_ == 0) admit(now);
    }
  }
  // Returns whether a request started.
  bool step(Instant now, More more) {
    const Decision decision = target_.next(now);
    wait_until_ = decision.kind() == Decision::Kind::kWait ? decision.until() : kNever;
    if (decision.kind() != Decision::Kind::kRun) return false;
    Request& request = decision.request();
    running_.push({now + kService, order_++, &request});
    if (more == More::kNone) return true;
    ++tally_.served;
    ++served_;
    tally_.wait.record(static_cast<std::uint64_t>((now - request.admitted_at()).count()));
    const auto bin = static_cast<std::size_t>(ns_of(now) / kBin.count());
    if (tally_.bins.size() <= bin) tally_.bins.resize(bin + 1);
    ++tally_.bins[bin].served;
    std::vector<std::uint64_t>& own = tally_.servers[server_];
    if (own.size() <= bin) own.resize(bin + 1);
    ++own[bin];
    ++tally_.bins[bin].cost;
    return true;
  }
  void finish_first(More more) {
    const Running done = running_.top();
    running_.pop();
    if (more == More::kSend) {
      const Nanoseconds latency = done.at - done.request->admitted_at();
      tally_.latency.record(static_cast<std::uint64_t>(latency.count()));
    }
    target_.complete(*done.request, std::max(done.at, last_));
    free_.push_back(done.request);
    --outstanding_;
  }

  const ClusterSpec& spec_;
  std::size_t server_;
  Tally& tally_;
  std::deque<Request> requests_;
  Target target_;
  RuleGauge gauge_;
  std::vector<Request*> free_;
  std::priority_queue<Running> running_;
  std::uint64_t order_ = 0;
  std::uint32_t outstanding_ = 0;
  std::uint64_t served_ = 0;
  Instant last_ = instant_at(0);
  Instant wait_until_ = kNever;
  Instant trickle_at_ = instant_at(0);
};

// Part of the limit in a window that ends with each 100 ms, none before the first is complete.
std::vector<double> rolling(const std::vector<Bin>& bins, const ClusterSpec& spec,
                            Nanoseconds length) {
  const auto width = static_cast<std::size_t>(length / kBin);
  const double allowed = spec.limit * (static_cast<double>(length.count()) / 1e9);
  std::vector<double> parts;
  for (std::size_t end = kCoarse; end <= bins.size(); end += kCoarse) {
    double served = 0;
    for (std::size_t i = end - std::min(width, end); i < end; ++i) {
      served += static_cast<double>(bins[i].served);
    }
    parts.push_back(served / allowed);
  }
  return parts;
}

WindowFigures windows(const std::vector<Bin>& bins, const ClusterSpec& spec, Nanoseconds length,
                      Nanoseconds begin_at = kBegin) {
  const auto width = static_cast<std::size_t>(length / kBin);
  const auto first = static_cast<std::size_t>(begin_at / kBin);
  const auto end = std::min(bins.size(), static_cast<std::size_t>(spec.length / kBin));
  const double allowed = spec.limit * (static_cast<double>(length.count()) / 1e9);
  WindowFigures figures{.least = 1e9, .most = 0};
  for (std::size_t begin = first; begin + width <= end; ++begin) {
    std::uint64_t served = 0;
    for (std::size_t bin = begin; bin < begin + width; ++bin) served += bins[bin].served;
    figures.least = std::min(figures.least, static_cast<double>(served) / allowed);
    figures.most = std::max(figures.most, static_cast<double>(served) / allowed);
  }
  return figures;
}

// The series of the report, one point for each 100 ms.
std::vector<Bin> coarse(const std::vector<Bin>& bins, std::size_t of) {
  std::vector<Bin> sums((bins.size() + of - 1) / of);
  for (std::size_t i = 0; i < bins.size(); ++i) {
    sums[i / of].served += bins[i].served;
    sums[i / of].cost += bins[i].cost;
  }
  return sums;
}

// The part of the limit used during the outage.
double through_outage(const std::vector<Bin>& bins, const ClusterSpec& spec) {
  ClusterSpec until = spec;
  until.length = ClusterSpec::kOutageAt + spec.outage_length();
  return windows(bins, until, spec.outage_length(), ClusterSpec::kOutageAt).most;
}

void plan_outage(const ClusterSpec& spec, Tally& tally, ClusterOptions& options) {
  if (spec.outage == ClusterSpec::Outage::kNone || options.fixed_slice != 0) return;
  const Nanoseconds end = ClusterSpec::kOutageAt + spec.outage_length();
  if (spec.outage == ClusterSpec::Outage::kEtcd) {
    options.etcd_gone_from = ClusterSpec::kOutageAt;
    options.etcd_gone_until = end;
    return;
  }
  options.leader_dies_at = ClusterSpec::kOutageAt;
  options.leader_back_at = end;
  options.leader_died = [&tally](std::size_t server) { tally.dead = server; };
}

std::int64_t fixed_slice_of(const ClusterSpec& spec, Contender contender) {
  const std::int64_t limit = std::int64_t{spec.limit} * kMilli;
  if (contender == Contender::kSlices) return 0;
  return contender == Contender::kEach ? limit : limit / static_cast<std::int64_t>(spec.servers);
}

}  // namespace

ClusterLimitOutcome run_cluster_limit(const ClusterSpec& spec, Contender contender,
                                      std::uint64_t seed) {
  Tally tally;
  tally.servers.resize(spec.servers);
  std::vector<const Traffic*> traffic(spec.servers);
  ClusterLimitOutcome result;
  ClusterOptions options;
  options.servers = spec.servers;
  options.seed = seed;
  options.length = spec.length;
  options.epoch = spec.epoch;
  options.limit = std::int64_t{spec.limit} * kMilli;
  options.terms.partition = spec.partition;
  options.cost = spec.cost;
  options.fixed_slice = fixed_slice_of(spec, contender);
  plan_outage(spec, tally, options);
  std::vector<std::uint64_t> served(spec.servers);
  options.load = [&](std::size_t server) {
    auto made = std::make_unique<Traffic>(spec, server, tally);
    traffic[server] = made.get();
    return made;
  };
  options.at_end = [&] {
    for (std::size_t i = 0; i < spec.servers; ++i) served[i] = traffic[i]->served();
  };
  result.cluster = run_cluster(options);
  result.short_windows = windows(tally.bins, spec, std::chrono::milliseconds{500});
  result.long_windows = windows(tally.bins, spec, std::chrono::seconds{5});
  result.rolling = rolling(tally.bins, spec, std::chrono::milliseconds{500});
  for (const std::vector<std::uint64_t>& bins : tally.servers) {
    std::vector<std::uint64_t>& sums = result.servers.emplace_back();
    for (std::size_t i = 0; i < bins.size(); ++i) {
      if (i % kCoarse == 0) sums.push_back(0);
      sums.back() += bins[i];
    }
  }
  const double all = spec.limit * (static_cast<double>(spec.length.count()) / 1e9);
  result.utilisation = windows(tally.bins, spec, spec.length - kBegin).most;
  if (spec.outage != ClusterSpec::Outage::kNone) {
    result.through_outage = through_outage(tally.bins, spec);
  }

  Outcome& outcome = result.outcome;
  outcome.contender = contender;
  outcome.duration = spec.length;
  outcome.bin = kCoarse * kBin;
  outcome.served = tally.served;
  outcome.utilisation = static_cast<double>(tally.served) / all;
  outcome.findings = result.cluster.findings;
  outcome.first_findings = result.cluster.first_findings;
  JobOutcome job;
  job.name = "wide";
  job.group = "wide";
  job.arrived = tally.arrived;
  job.served = tally.served;
  job.cost = tally.served;
  job.throughput = outcome.utilisation * spec.limit;
  job.wait = tally.wait;
  job.latency = tally.latency;
  job.bins = coarse(tally.bins, kCoarse);
  outcome.jobs.push_back(std::move(job));
  for (std::size_t i = 0; i < spec.servers; ++i) {
    outcome.targets.push_back({.name = fmt::format("server{}", i),
                               .served = served[i],
                               .cost = served[i],
                               .utilisation = static_cast<double>(served[i]) / all});
  }
  return result;
}

}  // namespace weir::sim
