// SPDX-License-Identifier: Apache-2.0
#include "weir/control/export_stats_text.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

namespace weir::control {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kPageBits = 12;

using Buckets = std::array<std::uint64_t, OpStats::ByteSum::kBuckets>;

// Both files begin with the same three times, in columns of their own.
void append_times(std::string& text, const OpStats::Operations& total, const Moment& moment,
                  std::string_view colon, std::size_t width) {
  const std::int64_t begun = moment.wall_of(total.since == kNever ? moment.now : total.since);
  const auto append = [&](std::string_view name, std::int64_t ns) {
    fmt::format_to(std::back_inserter(text), "{:<{}}{}.{:09} secs.nsecs\n",
                   fmt::format("{}{}", name, colon), width, ns / kSecond, ns % kSecond);
  };
  append("snapshot_time", moment.wall_ns);
  append("start_time", begun);
  append("elapsed_time", moment.wall_ns - begun);
}

std::uint64_t percent(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : part * 100 / all;
}

// From the first bucket in use to the last.
void append_histogram(std::string& text, std::string_view title, std::string_view unit,
                      const Buckets& read, const Buckets& written) {
  fmt::format_to(std::back_inserter(text),
                 "\n{:27}read      |     write\n{:<22} {:<5} % cum % |  {:<11} % cum %\n", "",
                 title, unit, unit);
  const std::uint64_t reads = std::accumulate(read.begin(), read.end(), std::uint64_t{0});
  const std::uint64_t writes = std::accumulate(written.begin(), written.end(), std::uint64_t{0});
  std::uint64_t read_so_far = 0;
  std::uint64_t written_so_far = 0;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read_so_far == reads && written_so_far == writes) break;
    read_so_far += read[i];
    written_so_far += written[i];
    if (read_so_far == 0 && written_so_far == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}:\t\t{:>10} {:>3} {:>3}   | {:>4} {:>3} {:>3}\n",
                   size_bound(i), read[i], percent(read[i], reads), percent(read_so_far, reads),
                   written[i], percent(written[i], writes), percent(written_so_far, writes));
  }
}

// A request of at most 2^(12 + i) bytes has at most 2^i pages.
Buckets pages_of(const Buckets& sizes) {
  Buckets pages{};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    pages[i < kPageBits ? 0 : i - kPageBits] += sizes[i];
  }
  return pages;
}

}  // namespace

std::string print_export_stats(const OpStats::Operations& total, const Moment& moment) {
  std::string text;
  append_times(text, total, moment, "", 36);
  const auto append = [&](std::string_view name, std::string_view unit, const OpStats::Sum& sum) {
    if (sum.samples == 0) return;
    fmt::format_to(std::back_inserter(text), "{:<36}{} samples [{}] {} {} {} {}\n", name,
                   sum.samples, unit, sum.min, sum.max, sum.sum, sum.sumsq);
  };
  append("read_bytes", "bytes", total.read_bytes);
  append("write_bytes", "bytes", total.write_bytes);
  static constexpr std::array<std::string_view, OpStats::kOps> kNames = {"read", "write", "punch",
                                                                         "sync"};
  for (std::size_t i = 0; i < kNames.size(); ++i) append(kNames[i], "usecs", total.usecs[i]);
  return text;
}

std::string print_brw_stats(const OpStats::Operations& total, const Moment& moment) {
  std::string text;
  append_times(text, total, moment, ":", 26);
  const Buckets& read = total.read_bytes.buckets;
  const Buckets& written = total.write_bytes.buckets;
  append_histogram(text, "pages per bulk r/w", "rpcs", pages_of(read), pages_of(written));
  append_histogram(text, "discontiguous pages", "rpcs", {}, {});
  append_histogram(text, "discontiguous blocks", "rpcs", {}, {});
  append_histogram(text, "disk fragmented I/Os", "ios", {}, {});
  append_histogram(text, "disk I/Os in flight", "ios", {}, {});
  append_histogram(text, "I/O time (1/1000s)", "ios", {}, {});
  append_histogram(text, "disk I/O size", "ios", read, written);
  return text;
}

}  // namespace weir::control
