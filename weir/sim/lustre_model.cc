// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lustre_model.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/command.h"

namespace weir::sim {
namespace {

constexpr std::size_t kPoliciesMax = 1043;  // bytes of a write to nrs_policies
constexpr std::size_t kArgumentMax = 15;
constexpr std::string_view kNames[] = {"fifo", "crrn", "orr", "trr", "tbf", "delay"};
constexpr std::string_view kPartitionTable = "/sys/kernel/debug/lnet/cpu_partition_table";
constexpr std::string_view kRatePath = "/sys/module/ptlrpc/parameters/tbf_rate";
constexpr std::string_view kDepthPath = "/sys/module/ptlrpc/parameters/tbf_depth";
constexpr std::size_t kRegular = 0;
constexpr std::size_t kHigh = 1;

tl::unexpected<Error> refuse(std::errc code, std::string_view where, std::string_view what) {
  return fail(code, quote(where), what);
}

tl::unexpected<Error> no_such_file(std::string_view path) {
  return fail(std::errc::no_such_file_or_directory, path, "no such file");
}

// A server does not support Weir's own keys, the syntax before 2.8, or commas in a NID.
bool is_lustre(const RuleChange& command) {
  if (command.is_old_form || !are_of_lustre(command.keys)) return false;
  bool bracket = false;
  for (const char c : command.conds) {
    if (c == '[') bracket = true;
    if (c == ']') bracket = false;
    if (c == ',' && bracket) return false;
  }
  return true;
}

}  // namespace

LustreServer::LustreServer(Options options, Rng rng)
    : options_(std::move(options)),
      service_(options_.kind == LustreStats::Kind::kMdt ? kMdsService : kService),
      targets_(options_.kind == LustreStats::Kind::kMdt ? kMdtTargets : kTargets),
      totals_(options_.kind == LustreStats::Kind::kMdt ? "md_stats" : "stats"),
      store_(options_.store, rng.split("store")),
      threads_(std::max(1U, options_.store.slots / std::max(1U, options_.cpts))),
      partitions_(options_.cpts) {
  WEIR_ASSERT(options_.cpts > 0 && !options_.osts.empty());
  options_.stats.kind = options_.kind;
  stats_.reserve(options_.osts.size());
  for (const std::string& ost : options_.osts) {
    stats_.emplace_back(options_.stats, rng.split("stats").split(ost));
  }
}

// ---- requests ----

void LustreServer::arrive(const Rpc& rpc, Instant now) {
  clock_ = std::max(clock_, now);
  Partition& partition = partitions_[rpc.cpt % partitions_.size()];
  Head& head = partition.heads[rpc.is_high ? kHigh : kRegular];
  Rpc own = rpc;
  own.arrived = now;
  if (head.tbf) {
    head.tbf->enqueue(own, now);
  } else {
    head.fifo.push_back(own);
  }
  dispatch(partition, now);
}

std::optional<Rpc> LustreServer::take(Head& head, Instant now) {
  // While a timer is armed no request is taken from the head.
  for (const auto* tbf : {head.draining.get(), head.tbf.get()}) {
    if (tbf != nullptr && tbf->wake()) return std::nullopt;
  }
  if (head.draining) {
    auto rpc = head.draining->dequeue(now, true);
    if (head.draining->queued() == 0) head.draining.reset();
    if (rpc) return rpc;
  }
  const bool both = !head.fifo.empty() && head.tbf && head.tbf->queued() > 0;
  const bool from_tbf = head.tbf && (head.fifo.empty() || (both && head.tbf_turn));
  head.tbf_turn = !head.tbf_turn;
  if (from_tbf) return head.tbf->dequeue(now, false);
  if (head.fifo.empty()) return std::nullopt;
  Rpc rpc = head.fifo.front();
  head.fifo.pop_front();
  return rpc;
}

std::uint32_t LustreServer::percent_of(const Partition& partition, const Rpc& rpc) const {
  std::uint32_t percent = partition.busy * 2 < threads_ ? options_.thin_percent : 100;
  const std::size_t ost = rpc.ost % options_.osts.size();
  if (ost < options_.ost_percent.size()) percent = percent * options_.ost_percent[ost] / 100;
  const auto found = options_.operation_percent.find(rpc.operation);
  return found == options_.operation_percent.end() ? percent : percent * found->second / 100;
}

void LustreServer::dispatch(Partition& partition, Instant now) {
  while (partition.busy < threads_) {
    auto rpc = take(partition.heads[kHigh], now);
    if (!rpc) rpc = take(partition.heads[kRegular], now);
    if (!rpc) return;
    Instant finish = store_.finish(now, weir::Bytes{rpc->bytes});
    finish = now + (finish - now) * percent_of(partition, *rpc) / 100;
    ++partition.busy;
    flights_.emplace(finish, Flight{*rpc, now});
  }
}

Instant LustreServer::fires_at(const LustreTbf& tbf) const {
  const auto wake = tbf.wake();
  if (!wake) return kNever;
  if (!options_.late_timers) return *wake;
  return *wake + std::chrono::microseconds{200} + tbf.armed_interval() / 50;
}

Instant LustreServer::next() const {
  Instant first = flights_.empty() ? kNever : flights_.begin()->first;
  for (const Partition& partition : partitions_) {
    for (const Head& head : partition.heads) {
      if (head.tbf) first = std::min(first, fires_at(*head.tbf));
      if (head.draining) first = std::min(first, fires_at(*head.draining));
    }
  }
  return first;
}

void LustreServer::fire_timers(Instant now) {
  for (Partition& partition : partitions_) {
    bool fired = false;
    for (Head& head : partition.heads) {
      for (LustreTbf* const tbf : {head.tbf.get(), head.draining.get()}) {
        if (tbf == nullptr || fires_at(*tbf) > now) continue;
        tbf->fire();
        fired = true;
      }
    }
    if (fired) dispatch(partition, now);
  }
}

void LustreServer::run(Instant now, const Done& done) {
  // A timer may be armed for a time in the past: it fires now.
  for (Instant at = next(); at <= now; at = next()) {
    at = clock_ = std::max(at, clock_);
    while (!flights_.empty() && flights_.begin()->first <= at) {
      const Flight flight = flights_.begin()->second;
      flights_.erase(flights_.begin());
      Partition& partition = partitions_[flight.rpc.cpt % partitions_.size()];
      --partition.busy;
      stats_[flight.rpc.ost % stats_.size()].count(flight.rpc, at - flight.started, at);
      done(flight.rpc, flight.started, at);
      dispatch(partition, at);
    }
    fire_timers(at);
  }
}

std::uint64_t LustreServer::queued() const {
  std::uint64_t sum = 0;
  for (const Partition& partition : partitions_) {
    for (const Head& head : partition.heads) {
      sum += head.fifo.size();
      if (head.tbf) sum += head.tbf->queued();
      if (head.draining) sum += head.draining->queued();
    }
  }
  return sum;
}

void LustreServer::drain_to_fifo(Head& head) {
  if (!head.tbf) return;
  head.tbf->fire();
  while (auto rpc = head.tbf->dequeue(Instant{}, true)) head.fifo.push_back(*rpc);
  head.tbf.reset();
  head.argument.clear();
}

void LustreServer::restart() {
  for (Partition& partition : partitions_) {
    for (Head& head : partition.heads) drain_to_fifo(head);
  }
  for (LustreStats& stats : stats_) stats.clear();
}

// ---- files ----

std::string LustreServer::file_of(std::size_t ost, std::string_view name) const {
  return fmt::format("{}{}/{}", targets_, options_.osts[ost], name);
}

std::vector<std::string> LustreServer::paths() const {
  std::vector<std::string> all = {
      std::string(service_) + "nrs_policies", std::string(service_) + "nrs_tbf_rule",
      std::string(kPartitionTable), std::string(kRatePath), std::string(kDepthPath)};
  for (std::size_t i = 0; i < options_.osts.size(); ++i) {
    all.push_back(file_of(i, "job_stats"));
    all.push_back(file_of(i, totals_));
  }
  return all;
}

Result<std::vector<std::string>> LustreServer::read_parts(std::string_view path,
                                                          Instant now) const {
  for (std::size_t i = 0; i < options_.osts.size(); ++i) {
    if (path == file_of(i, "job_stats")) {
      return stats_[i].job_stats();
    }
  }
  auto text = read(path, now);
  if (!text) return tl::unexpected(text.error());
  return std::vector<std::string>{std::move(*text)};
}

Result<std::string> LustreServer::read(std::string_view path, Instant now) const {
  if (path == fmt::format("{}nrs_policies", service_)) return read_policies();
  if (path == fmt::format("{}nrs_tbf_rule", service_)) return read_rules();
  if (path == kRatePath) return fmt::format("{}\n", options_.tbf_rate);
  if (path == kDepthPath) return fmt::format("{}\n", options_.tbf_depth);
  if (path == kPartitionTable) {
    std::string text;
    for (std::uint32_t i = 0; i < options_.cpts; ++i) text += fmt::format("{}\t: {}\n", i, i);
    return text;
  }
  for (std::size_t i = 0; i < options_.osts.size(); ++i) {
    if (path == file_of(i, totals_)) return stats_[i].stats(now);
    if (path != file_of(i, "job_stats")) continue;
    std::string text;
    for (const std::string& part : stats_[i].job_stats()) text += part;
    return text;
  }
  return no_such_file(path);
}

Result<void> LustreServer::write(std::string_view path, std::string_view text, Instant now) {
  const auto known = paths();
  if (std::find(known.begin(), known.end(), path) == known.end()) return no_such_file(path);
  if (options_.write_error != 0) return fail_errno(options_.write_error, path);
  Result<void> done = refuse(std::errc::permission_denied, path, "cannot be written");
  if (path == fmt::format("{}nrs_policies", service_)) done = write_policies(text);
  if (path == fmt::format("{}nrs_tbf_rule", service_)) done = write_rule(text);
  for (std::size_t i = 0; i < options_.osts.size(); ++i) {
    if (path == file_of(i, "job_stats")) {
      done = write_job_stats(i, text);
    }
  }
  for (Partition& partition : partitions_) dispatch(partition, now);
  return done;
}

Result<void> LustreServer::write_job_stats(std::size_t ost, std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text == "clear") {
    stats_[ost].clear();
    return {};
  }
  if (text.empty() || !stats_[ost].clear(JobId(text))) {
    return refuse(std::errc::invalid_argument, text, "no such job");
  }
  return {};
}

// ---- nrs_policies ----

std::string LustreServer::policies_of(std::size_t head) const {
  std::string text;
  for (const std::string_view name : kNames) {
    const Head& first = partitions_.front().heads[head];
    const bool is_tbf = name == "tbf";
    const bool is_fifo = name == "fifo";
    std::uint64_t queued = 0;
    std::uint64_t active = 0;
    for (const Partition& partition : partitions_) {
      const Head& own = partition.heads[head];
      if (is_fifo) queued += own.fifo.size();
      if (is_tbf && own.tbf) queued += own.tbf->queued();
      if (is_tbf && own.draining) queued += own.draining->queued();
      if (head == kRegular && is_tbf == static_cast<bool>(own.tbf) && (is_tbf || is_fifo)) {
        active += partition.busy;
      }
    }
    std::string_view state = is_fifo ? "started" : "stopped";
    if (is_tbf && first.tbf) state = "started";
    if (is_tbf && !first.tbf && first.draining) state = "stopping";
    const std::string argument =
        is_tbf && first.tbf && !first.argument.empty() ? " " + first.argument : "";
    text += fmt::format(
        "  - name: {}{}\n    state: {}\n    fallback: {}\n    queued: {:<20}\n"
        "    active: {:<20}\n\n",
        name, argument, state, is_fifo ? "yes" : "no", queued, active);
  }
  return text;
}

Result<std::string> LustreServer::read_policies() const {
  for (const Partition& partition : partitions_) {
    for (std::size_t head : {kRegular, kHigh}) {
      const Head& own = partition.heads[head];
      const Head& first = partitions_.front().heads[head];
      if (static_cast<bool>(own.tbf) != static_cast<bool>(first.tbf) ||
          (own.tbf && own.argument != first.argument)) {
        return refuse(std::errc::invalid_argument, "nrs_policies", "CPTs disagree");
      }
    }
  }
  return "\nregular_requests:\n" + policies_of(kRegular) + "high_priority_requests:\n" +
         policies_of(kHigh);
}

Result<void> LustreServer::write_policies(std::string_view text) {
  if (text.size() > kPoliciesMax) return refuse(std::errc::invalid_argument, text, "too long");
  const std::string_view name = text.substr(0, text.find(' '));
  std::optional<std::string_view> argument;
  if (name.size() < text.size()) argument = text.substr(name.size() + 1);
  if (name.size() > kArgumentMax) return refuse(std::errc::invalid_argument, name, "too long");
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    return refuse(std::errc::no_such_file_or_directory, name, "no such policy");
  }
  bool addressed[] = {true, true};
  if (argument) {
    const std::string_view word = argument->substr(0, argument->find(' '));
    if (word == "reg" || word == "hp") {
      addressed[word == "reg" ? kHigh : kRegular] = false;
      argument = word.size() < argument->size() ? std::optional(argument->substr(word.size() + 1))
                                                : std::nullopt;
    }
  }
  if (argument && (argument->empty() || argument->size() > kArgumentMax)) {
    return refuse(std::errc::invalid_argument, text, "no argument, or one that is too long");
  }
  for (Partition& partition : partitions_) {
    for (const std::size_t head : {kRegular, kHigh}) {
      if (!addressed[head]) continue;
      auto started = start_policy(partition.heads[head], name, argument.value_or(""));
      if (!started) return started;
    }
  }
  return {};
}

Result<void> LustreServer::start_policy(Head& head, std::string_view name,
                                        std::string_view argument) {
  if (name != "tbf" && name != "fifo") {
    return refuse(std::errc::operation_not_supported, name, "is not modelled");
  }
  if (name == "fifo") {
    if (head.tbf && head.tbf->queued() > 0) head.draining = std::move(head.tbf);
    head.tbf.reset();
    head.argument.clear();
    return {};
  }
  if (head.draining) {
    return refuse(std::errc::resource_unavailable_try_again, name, "is being stopped");
  }
  if (head.tbf && head.argument == argument) return {};
  // The old instance is stopped first, even if the new argument is not valid.
  drain_to_fifo(head);
  FieldSet type = FieldSet::generic();
  if (!argument.empty()) {
    const auto parsed = FieldSet::parse_type(argument);
    if (!parsed || argument == "generic") {
      return refuse(std::errc::invalid_argument, argument, "is not a valid type");
    }
    type = *parsed;
  }
  head.tbf = std::make_unique<LustreTbf>(type, options_.tbf_rate, options_.tbf_depth);
  head.argument = argument;
  return {};
}

// ---- nrs_tbf_rule ----

Result<std::string> LustreServer::read_rules() const {
  const Partition& first = partitions_.front();
  if (!first.heads[kHigh].tbf) {
    return refuse(std::errc::no_such_device, "nrs_tbf_rule", "tbf is not running");
  }
  std::string text;
  for (const std::size_t head : {kRegular, kHigh}) {
    text += head == kRegular ? "regular_requests:\n" : "high_priority_requests:\n";
    if (!first.heads[head].tbf) continue;  // the listing ends at the first CPT without it
    for (std::size_t cpt = 0; cpt < partitions_.size(); ++cpt) {
      const auto& tbf = partitions_[cpt].heads[head].tbf;
      if (tbf) text += fmt::format("CPT {}:\n{}", cpt, tbf->listing());
    }
  }
  return text;
}

Result<void> LustreServer::write_rule(std::string_view text) {
  const Partition& first = partitions_.front();
  // Verb and heads of a command do not depend on the type; its conditions do.
  const RuleOutline outline = outline_of(text);
  const bool for_regular = outline.heads != Heads::kHigh;
  const bool for_high = outline.heads != Heads::kRegular;
  const LustreTbf* const speaks =
      for_high ? first.heads[kHigh].tbf.get() : first.heads[kRegular].tbf.get();
  if (speaks == nullptr && outline.starts) {
    return refuse(std::errc::invalid_argument, text, "tbf is not running");
  }
  const auto command =
      parse_command(text, speaks == nullptr ? FieldSet{Field::kJobid} : speaks->type());
  if (!command) return tl::unexpected(command.error());
  if (!is_lustre(*command)) {
    return refuse(std::errc::invalid_argument, text,
                  "is not a command that a Lustre server accepts");
  }
  for (Partition& partition : partitions_) {
    for (const std::size_t head : {kRegular, kHigh}) {
      if (!(head == kRegular ? for_regular : for_high)) continue;
      LustreTbf* const tbf = partition.heads[head].tbf.get();
      if (tbf == nullptr) {
        if (partition.heads[head].draining) {
          return refuse(std::errc::resource_unavailable_try_again, text, "tbf is being stopped");
        }
        return refuse(std::errc::no_such_device, text, "tbf is not running");
      }
      if (command->verb == Verb::kStart && !(tbf->type() == command->type)) {
        return refuse(std::errc::invalid_argument, text, "is of another type");
      }
      if (auto applied = tbf->apply(*command); !applied) return applied;
    }
  }
  return {};
}

}  // namespace weir::sim
