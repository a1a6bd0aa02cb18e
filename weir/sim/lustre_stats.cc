// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lustre_stats.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include <fmt/format.h>

namespace weir::sim {
namespace {

// Wall-clock time at the start of the timeline; arbitrary.
constexpr std::int64_t kEpochSeconds = 1'794'727'000;
constexpr std::string_view kOtherCounters[] = {"getattr",  "setattr",  "punch",   "sync",
                                               "destroy",  "create",   "statfs",  "get_info",
                                               "set_info", "quotactl", "prealloc"};

// In the order of an MDT; those in bytes have a histogram.
constexpr std::string_view kMdtCounters[] = {"open",
                                             "close",
                                             "mknod",
                                             "link",
                                             "unlink",
                                             "mkdir",
                                             "rmdir",
                                             "rename",
                                             "getattr",
                                             "setattr",
                                             "getxattr",
                                             "setxattr",
                                             "statfs",
                                             "sync",
                                             "samedir_rename",
                                             "parallel_rename_file",
                                             "parallel_rename_dir",
                                             "crossdir_rename",
                                             "rename_trylocks",
                                             "read",
                                             "write",
                                             "read_bytes",
                                             "write_bytes",
                                             "punch",
                                             "migrate",
                                             "fallocate",
                                             "readpage"};

std::string wall(Instant at) {
  const std::int64_t ns = ns_of(at);
  return fmt::format("{}.{:09} secs.nsecs", kEpochSeconds + ns / 1'000'000'000, ns % 1'000'000'000);
}

std::string span(Nanoseconds time) {
  return fmt::format("{}.{:09} secs.nsecs", time.count() / 1'000'000'000,
                     time.count() % 1'000'000'000);
}

// Letters of the kernel's Latin-1 table, and other characters that are not escaped.
bool is_plain(unsigned char c) {
  if (c >= 0xC0) return c != 0xD7 && c != 0xF7;
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view(".@_:/-").find(static_cast<char>(c)) != std::string_view::npos;
}

std::string bound_name(std::uint64_t bound) {
  constexpr std::string_view kUnits[] = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (bound >= 1024 && unit + 1 < std::size(kUnits)) {
    bound /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bound, kUnits[unit]);
}

}  // namespace

std::string print_lustre_job(std::string_view id) {
  bool quoted = id.starts_with('@');
  std::string text;
  for (const char c : id) {
    const auto byte = static_cast<unsigned char>(c);
    quoted = quoted || c == ':' || !is_plain(byte);
    if (is_plain(byte)) {
      text += c;
    } else {
      text += fmt::format("\\x{:02X}", byte);
    }
  }
  return quoted ? "\"" + text + "\"" : text;
}

void LustreStats::Sum::add(std::uint64_t value) {
  min = samples == 0 ? value : std::min(min, value);
  max = std::max(max, value);
  ++samples;
  sum += value;
  squares += value * value;
}

void LustreStats::Bytes::add(std::uint64_t value) {
  sum.add(value);
  ++histogram[std::bit_ceil(value)];
}

void LustreStats::Counters::add(const Rpc& rpc, Nanoseconds took) {
  const auto us = static_cast<std::uint64_t>(took.count() / 1000);
  if (!rpc.operation.empty()) return operations[rpc.operation].add(us);
  (rpc.is_read ? read_bytes : write_bytes).add(rpc.bytes);
  (rpc.is_read ? read : write).add(us);
}

const LustreStats::Sum& LustreStats::Counters::of(std::string_view operation) const {
  static constexpr Sum kNone;
  const auto found = operations.find(operation);
  return found == operations.end() ? kNone : found->second;
}

void LustreStats::count(const Rpc& rpc, Nanoseconds took, Instant now) {
  all_.add(rpc, took);
  if (rpc.job.empty()) return;
  if (Entry* const entry = entry_of(rpc.job, now)) {
    entry->counters.add(rpc, took);
    entry->last = now;
  }
}

// nullptr while the job has vanished.
LustreStats::Entry* LustreStats::entry_of(const JobId& job, Instant now) {
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.job == job; });
  if (known != entries_.end()) return &*known;
  if (const auto away = away_.find(job); away != away_.end()) {
    if (now < away->second) return nullptr;
    away_.erase(away);
  } else if (rng_.chance(options_.vanish_permille, 1000)) {
    for (const Entry& entry : entries_) away_[entry.job] = now + options_.vanish_for;
    vanished_ += entries_.size();
    entries_.clear();
  }
  entries_.push_back({.job = job, .since = now, .last = now, .counters = {}});
  return &entries_.back();
}

bool LustreStats::clear(const JobId& job) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.job == job; }) > 0;
}

std::string LustreStats::counter(std::string_view name, std::string_view unit, const Sum& sum,
                                 std::string_view more) {
  return fmt::format(
      "  {:<16} {{ samples: {:>11}, unit: {:>5}, min: {:>8}, max: {:>8}, sum: {:>16}, "
      "sumsq: {:>18}{} }}\n",
      fmt::format("{}:", name), sum.samples, unit, sum.min, sum.max, sum.sum, sum.squares, more);
}

// The model never counts these, so their lines are always the same.
const std::string& LustreStats::other_counters() {
  static const std::string text = [] {
    std::string lines;
    for (const std::string_view name : kOtherCounters) lines += counter(name, "usecs", {}, "");
    return lines;
  }();
  return text;
}

std::string LustreStats::bytes_line(std::string_view name, const Bytes& of) {
  std::string histogram = ", hist: { ";
  std::string_view comma;
  for (const auto& [bound, count] : of.histogram) {
    histogram += fmt::format("{}{}: {}", comma, bound_name(bound), count);
    comma = ", ";
  }
  return counter(name, "bytes", of.sum, histogram + " }");
}

std::string LustreStats::print(const Entry& entry) const {
  std::string text = fmt::format(
      "- {:<16} {}\n  {:<16} {}\n  {:<16} {}\n  {:<16} {}\n",
      "job_id:", print_lustre_job(entry.job.text()), "snapshot_time:", wall(entry.last),
      "start_time:", wall(entry.since), "elapsed_time:", span(entry.last - entry.since));
  if (options_.kind == Kind::kMdt) {
    for (const std::string_view name : kMdtCounters) {
      text += name.ends_with("_bytes") ? bytes_line(name, {})
                                       : counter(name, "usecs", entry.counters.of(name), "");
    }
    return text;
  }
  text += bytes_line("read_bytes", entry.counters.read_bytes);
  text += bytes_line("write_bytes", entry.counters.write_bytes);
  text += counter("read", "usecs", entry.counters.read, "");
  text += counter("write", "usecs", entry.counters.write, "");
  return text + other_counters();
}

std::vector<std::string> LustreStats::job_stats() const {
  std::vector<std::string> parts;
  parts.reserve(entries_.size());
  for (const Entry& entry : entries_) parts.push_back(print(entry));
  if (!parts.empty()) parts.front() = "job_stats:\n" + parts.front();
  return parts;
}

std::string LustreStats::stats(Instant now) const {
  std::string text =
      fmt::format("{:<35} {}\n{:<35} {}\n{:<35} {}\n", "snapshot_time", wall(now), "start_time",
                  wall(Instant{}), "elapsed_time", span(now - Instant{}));
  const auto line = [&](std::string_view name, std::string_view unit, const Sum& sum) {
    if (sum.samples == 0) return;
    text += fmt::format("{:<35} {} samples [{}] {} {} {} {}\n", name, sum.samples, unit, sum.min,
                        sum.max, sum.sum, sum.squares);
  };
  line("read_bytes", "bytes", all_.read_bytes.sum);
  line("write_bytes", "bytes", all_.write_bytes.sum);
  line("read", "usecs", all_.read);
  line("write", "usecs", all_.write);
  for (const std::string_view name : kMdtCounters) line(name, "usecs", all_.of(name));
  return text;
}

}  // namespace weir::sim
