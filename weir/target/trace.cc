// SPDX-License-Identifier: Apache-2.0
#include "weir/target/trace.h"

#include <bit>
#include <cstring>

#include "weir/base/hash.h"

namespace weir {
namespace {

std::uint64_t word_of(std::string_view bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof word));
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

}  // namespace

std::uint64_t trace_checksum(std::uint64_t before, std::string_view records) {
  std::uint64_t sum = hash_words(before, records.size());
  while (!records.empty()) {
    sum = hash_words(sum, word_of(records));
    records.remove_prefix(std::min(records.size(), sizeof sum));
  }
  return sum;
}

std::uint64_t sum_of(const PeriodReport& report, const std::optional<Rate>& capacity) {
  std::uint64_t sum =
      hash_words(static_cast<std::uint64_t>(ns_of(report.at)), report.budget.count());
  if (capacity) sum ^= hash_words(capacity->tokens(), capacity->time_ns());
  for (const JobPeriod& job : report.jobs) {
    sum = hash_words(sum ^ job.job.hash(), job.demand.count());
    sum = hash_words(sum ^ job.nodes, job.final.count());
    sum = hash_words(sum ^ static_cast<std::uint64_t>(job.record),
                     hash_words(job.borrowed.count(), job.lent.count()));
  }
  for (const NodePeriod& node : report.nodes) {
    sum = hash_words(sum ^ node.period.job.hash(), node.period.nodes);
    sum =
        hash_words(sum ^ node.period.final.count(), static_cast<std::uint64_t>(node.period.record));
  }
  return sum;
}

}  // namespace weir
