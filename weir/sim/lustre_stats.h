// SPDX-License-Identifier: Apache-2.0
//
// The counters of an OST or MDT of the modelled Lustre server, and its files: job_stats, one entry
// for each job in order of creation, and stats (md_stats), the sum over all requests.
//
// Only served requests are counted, never waiting ones. And job_stats loses active jobs, as real
// servers do: when the first request of a new job creates an entry, all others may vanish, and stay
// away for a while although their jobs continue. A reader of job_stats alone then considers them
// idle; stats continues to count them. The probability and the time are options.
//
// The text is that of release 2.17.57, byte for byte. The random generator is an argument;
// one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/rng.h"
#include "weir/base/time.h"
#include "weir/sim/lustre_tbf.h"

namespace weir::sim {

class LustreStats {
 public:
  enum class Kind : std::uint8_t { kOst, kMdt };

  struct Options {
    Kind kind = Kind::kOst;
    std::uint32_t vanish_permille = 0;  // new entries that make the others vanish
    Nanoseconds vanish_for = std::chrono::seconds{3};
  };

  LustreStats(const Options& options, Rng rng) : options_(options), rng_(rng) {}

  // A request was served, in this time.
  void count(const Rpc& rpc, Nanoseconds took, Instant now);
  void clear() { entries_.clear(); }
  // One job; false if it is not listed.
  bool clear(const JobId& job);

  // One job per piece, as read(2) returns them; the header is part of the first.
  std::vector<std::string> job_stats() const;
  std::string stats(Instant now) const;

  std::uint64_t vanished() const { return vanished_; }

 private:
  struct Sum {
    std::uint64_t samples = 0;
    std::uint64_t min = 0;
    std::uint64_t max = 0;
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;

    void add(std::uint64_t value);
  };
  struct Bytes {
    Sum sum;
    std::map<std::uint64_t, std::uint64_t> histogram;  // by the power of two not below

    void add(std::uint64_t value);
  };
  struct Counters {
    Bytes read_bytes;
    Bytes write_bytes;
    Sum read;
    Sum write;
    std::map<std::string_view, Sum> operations;  // of an MDT

    void add(const Rpc& rpc, Nanoseconds took);
    const Sum& of(std::string_view operation) const;
  };
  struct Entry {
    JobId job;
    Instant since;
    Instant last;
    Counters counters;
  };

  Entry* entry_of(const JobId& job, Instant now);
  static std::string counter(std::string_view name, std::string_view unit, const Sum& sum,
                             std::string_view more);
  static const std::string& other_counters();
  std::string print(const Entry& entry) const;
  static std::string bytes_line(std::string_view name, const Bytes& of);

  Options options_;
  Rng rng_;
  std::vector<Entry> entries_;
  std::map<JobId, Instant> away_;  // vanished until this time
  Counters all_;
  std::uint64_t vanished_ = 0;
};

// An id as in job_stats: quoted, with \xHH, if it is not plain.
std::string print_lustre_job(std::string_view id);

}  // namespace weir::sim
