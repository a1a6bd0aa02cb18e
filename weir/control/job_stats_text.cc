// SPDX-License-Identifier: Apache-2.0
#include "weir/control/job_stats_text.h"

#include <array>
#include <charconv>
#include <iterator>

#include <fmt/format.h>

#include "weir/base/quote.h"

namespace weir::control {
namespace {

constexpr std::size_t kWriteMax = 127;
constexpr std::int64_t kSecond = 1'000'000'000;

// Counters of an OST in listing order; those without an NBD command stay 0.
struct Counter {
  std::string_view name;
  int op = -1;
};
constexpr std::array<Counter, 13> kCounters = {{{"read", 0},
                                                {"write", 1},
                                                {"getattr"},
                                                {"setattr"},
                                                {"punch", 2},
                                                {"sync", 3},
                                                {"destroy"},
                                                {"create"},
                                                {"statfs"},
                                                {"get_info"},
                                                {"set_info"},
                                                {"quotactl"},
                                                {"prealloc"}}};

bool is_plain(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '@' || c == '_' || c == ':' || c == '/' || c == '-';
}

// In double quotes if a YAML parser would otherwise read something different.
std::string quoted_id(std::string_view id) {
  const std::string shown = printable_id(id);
  const bool quotes =
      shown.size() != id.size() || id.find(':') != std::string_view::npos || id.starts_with('@');
  return quotes ? "\"" + shown + "\"" : shown;
}

void append_sum(std::string& text, std::string_view name, const OpStats::Sum& sum,
                std::string_view unit) {
  fmt::format_to(std::back_inserter(text),
                 "  {:<16} {{ samples: {:>11}, unit: {:>5}, min: {:>8}, max: {:>8}, sum: {:>16}, "
                 "sumsq: {:>18}",
                 fmt::format("{}:", name), sum.samples, unit, sum.min, sum.max, sum.sum, sum.sumsq);
}

void append_bytes(std::string& text, std::string_view name, const OpStats::ByteSum& sum) {
  append_sum(text, name, sum, "bytes");
  text += ", hist: { ";
  bool first = true;
  for (std::size_t bucket = 0; bucket < sum.buckets.size(); ++bucket) {
    if (sum.buckets[bucket] == 0) continue;
    text += fmt::format("{}{}: {}", first ? "" : ", ", size_bound(bucket), sum.buckets[bucket]);
    first = false;
  }
  text += " } }\n";
}

void append_time(std::string& text, std::string_view key, std::int64_t ns) {
  fmt::format_to(std::back_inserter(text), "  {:<16} {}.{:09} secs.nsecs\n",
                 fmt::format("{}:", key), ns / kSecond, ns % kSecond);
}

tl::unexpected<Error> refuse(std::string_view text, std::string_view what, std::string_view hint) {
  return fail(std::errc::invalid_argument, quote(text), what, hint);
}

}  // namespace

std::string size_bound(std::size_t bucket) {
  static constexpr std::array<std::string_view, 4> kUnits = {"", "K", "M", "G"};
  return fmt::format("{}{}", std::uint64_t{1} << (bucket % 10), kUnits[bucket / 10]);
}

std::string printable_id(std::string_view id) {
  std::string shown;
  shown.reserve(id.size());
  for (const char c : id) {
    if (is_plain(c)) {
      shown += c;
    } else {
      fmt::format_to(std::back_inserter(shown), "\\x{:02X}", static_cast<unsigned char>(c));
    }
  }
  return shown;
}

Result<std::string> read_id(std::string_view text) {
  std::string id;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\') {
      id += text[at];
      continue;
    }
    unsigned byte = 0;
    const std::string_view digits = text.substr(std::min(at + 2, text.size()), 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    const bool whole = digits.size() == 2 && end == digits.data() + 2 && error == std::errc{};
    if (!whole || text[at + 1] != 'x') {
      return refuse(text, "a backslash that is not part of \\xHH",
                    "write a byte as \\x and two digits");
    }
    id += static_cast<char>(byte);
    at += 3;
  }
  if (id.empty()) return refuse(text, "no job id", "give a job id, or write clear for all jobs");
  return id;
}

std::string print_job_stats(OpStats& stats, const Moment& moment) {
  const auto& jobs = stats.jobs(moment.now);
  if (jobs.empty()) return {};
  std::string text = "job_stats:\n";
  for (const OpStats::Job& job : jobs) {
    text += fmt::format("- {:<16} {}\n", "job_id:", quoted_id(job.id.text()));
    append_time(text, "snapshot_time", moment.wall_of(job.updated));
    append_time(text, "start_time", moment.wall_of(job.since));
    append_time(text, "elapsed_time", (job.updated - job.since).count());
    append_bytes(text, "read_bytes", job.read_bytes);
    append_bytes(text, "write_bytes", job.write_bytes);
    for (const Counter& counter : kCounters) {
      static constexpr OpStats::Sum kNone;
      append_sum(text, counter.name,
                 counter.op < 0 ? kNone : job.usecs[static_cast<std::size_t>(counter.op)], "usecs");
      text += " }\n";
    }
  }
  return text;
}

Result<void> write_job_stats(OpStats& stats, std::string_view text) {
  if (text.size() > kWriteMax) return refuse(text, "is too long", "a job id has up to 31 bytes");
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text == "clear") {
    stats.clear();
    return {};
  }
  if (text.size() >= 2 && text.starts_with('"') && text.ends_with('"')) {
    text = text.substr(1, text.size() - 2);
  }
  const auto id = read_id(text);
  if (!id) return tl::unexpected(id.error());
  if (!stats.drop(JobId(*id))) return refuse(text, "no such job", "list them with get_param");
  return {};
}

std::string print_cleanup_interval(const OpStats& stats) {
  return fmt::format("{}\n", stats.cleanup_interval().count() / kSecond);
}

namespace {

Result<std::chrono::seconds> read_cleanup_interval(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return refuse(text, "not a number of seconds", "write seconds; 0 means never");
  }
  return std::chrono::seconds{value / 2 * 2};
}

}  // namespace

Result<void> check_cleanup_interval(std::string_view text) {
  const auto interval = read_cleanup_interval(text);
  if (!interval) return tl::unexpected(interval.error());
  return {};
}

Result<void> write_cleanup_interval(OpStats& stats, std::string_view text) {
  const auto interval = read_cleanup_interval(text);
  if (!interval) return tl::unexpected(interval.error());
  stats.set_cleanup_interval(*interval);
  return {};
}

}  // namespace weir::control
