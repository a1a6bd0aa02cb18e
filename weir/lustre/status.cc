// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/status.h"

#include <algorithm>

#include <fmt/format.h>

#include "weir/base/control_characters.h"
#include "weir/base/quote.h"

namespace weir::lustre {
namespace {

using State = JobDemand::State;

constexpr std::size_t kNamesMax = 3;

std::string shown(std::string_view id) {
  return has_control(id) || id.find(' ') != std::string_view::npos ? quote(id) : std::string(id);
}

}  // namespace

std::string_view state_name(State state) {
  if (state == State::kIdle) return "idle";
  return state == State::kActive ? "active" : "backlogged";
}

const JobStatus* Status::find(std::string_view job) const {
  const JobId id(job);
  const auto found = std::lower_bound(jobs.begin(), jobs.end(), id,
                                      [](const JobStatus& a, const JobId& b) { return a.job < b; });
  return found == jobs.end() || found->job != id ? nullptr : &*found;
}

void StatusKeeper::count(const Driver& driver, Instant now) {
  const auto& demands = driver.controller().demands();
  for (const JobDemand& demand : demands) {
    Sums& sums = jobs_[demand.job];
    sums.served += demand.served.count();
    sums.window += demand.served.count();
  }
  if (!window_) window_ = now;
  const Nanoseconds elapsed = now - *window_;
  if (elapsed < kWindow) return;
  window_ = now;
  using Wide = unsigned __int128;
  for (auto each = jobs_.begin(); each != jobs_.end();) {
    Sums& sums = each->second;
    const bool is_gone = sums.window == 0 && driver.controller().demand_of(each->first) == nullptr;
    sums.per_second = static_cast<std::uint64_t>(Wide{sums.window} * 1'000'000'000 /
                                                 static_cast<std::uint64_t>(elapsed.count()));
    sums.window = 0;
    each = is_gone ? jobs_.erase(each) : std::next(each);
  }
}

Status StatusKeeper::status(const Driver& driver, Instant now) const {
  const RuleController& controller = driver.controller();
  Status status;
  status.at = now;
  status.service = driver.options().service->name;
  status.is_paper = controller.options().mode == RuleController::Mode::kPaper;
  status.is_dry_run = driver.options().dry_run;
  if (const auto capacity = controller.capacity()) {
    status.capacity = tokens_in(*capacity, std::chrono::seconds{1}).count();
  }
  status.queued = driver.last_round().queued;
  status.busy = driver.last_round().busy;
  status.cpts = controller.options().cpts;
  status.counters = driver.counters();
  status.held = driver.holds().held();
  status.unlimited = driver.unlimited();
  std::map<JobId, std::int64_t> records;
  for (const JobRecord& record : controller.report().records) records[record.job] = record.record;
  status.jobs.reserve(jobs_.size());
  for (const auto& [job, sums] : jobs_) {
    JobStatus& each = status.jobs.emplace_back();
    each.job = job;
    each.nodes = driver.nodes_of(job);
    if (const JobLimits::Cap* const limit = driver.limit_of(job)) each.limit = *limit;
    if (const JobDemand* const demand = controller.demand_of(job)) {
      each.state = demand->state;
      each.known = demand->known;
    }
    each.served = sums.served;
    each.per_second = sums.per_second;
    each.cost = driver.cost_of(job);
    each.entitlement = controller.entitlement_of(job);
    if (const auto record = records.find(job); record != records.end()) {
      each.record = record->second;
    }
    if (const Hold* const hold = driver.holds().find(job)) {
      each.hold = *hold;
      if (hold->since) each.hold.total += now - *hold->since;
    }
  }
  return status;
}

namespace {

// The jobs that a held one makes room for: "climate and ocean are entitled to 298/s".
std::string others_of(const Status& status, const JobStatus& held) {
  std::vector<std::string> names;
  std::uint64_t sum = 0;
  std::size_t count = 0;
  for (const JobStatus& job : status.jobs) {
    const bool is_paper_peer = status.is_paper && job.entitlement > 0;
    const bool is_free = !job.hold.rate && job.state == State::kBacklogged;
    if (job.job == held.job || job.entitlement == 0 || (!is_free && !is_paper_peer)) continue;
    sum += job.entitlement;
    if (++count <= kNamesMax) names.push_back(shown(job.job.text()));
  }
  if (names.empty()) return {};
  if (count > names.size()) {
    const std::size_t more = count - names.size();
    names.push_back(fmt::format("{} other{}", more, more == 1 ? "" : "s"));
  }
  std::string text = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) {
    text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return fmt::format("{} {} entitled to {}/s", text, count == 1 ? "is" : "are", sum);
}

// Its rule limits requests, and entitlements are in mean requests.
std::string cost_text(const JobStatus& job) {
  if (job.cost * 10 >= RequestCosts::kOne * 9 && job.cost * 10 <= RequestCosts::kOne * 11)
    return {};
  return fmt::format("; its requests take {:.2g} times the mean",
                     static_cast<double>(job.cost) / RequestCosts::kOne);
}

}  // namespace

std::string explain(const Status& status, const JobStatus& job, std::string_view since) {
  if (job.hold.rate) {
    const std::uint64_t rate = std::uint64_t{*job.hold.rate} * status.cpts;
    if (job.limit) {
      return fmt::format(
          "limited to {}/s since {} by {} of the cluster, of which this server has {}/s for it",
          rate, since, quote(job.limit->rule), job.limit->per_second);
    }
    const std::string others = others_of(status, job);
    return fmt::format(
        "{} at {}/s since {} because {}{}{}", status.is_dry_run ? "would be held" : "held", rate,
        since, others.empty() ? job.hold.reason : others,
        status.cpts > 1 ? fmt::format(" ({} on each of {} CPTs)", *job.hold.rate, status.cpts) : "",
        cost_text(job));
  }
  std::string text = "not held: ";
  if (job.state == State::kIdle) {
    text += "it is idle";
  } else if (job.entitlement == 0) {
    text += status.capacity ? "no other job competes with it" : "the capacity is not known yet";
  } else if (job.state == State::kActive) {
    text += fmt::format("it uses {}/s, less than its entitlement of {}/s", job.per_second,
                        job.entitlement);
  } else {
    text += fmt::format("no other job is entitled to more than its {}/s", job.entitlement);
  }
  return text;
}

}  // namespace weir::lustre
