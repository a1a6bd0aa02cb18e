// SPDX-License-Identifier: Apache-2.0
//
// A recording of what a driver would see: rounds and glances, nothing that it does. Written by
// `weir lustre record`, read by `weir lustre what-if`. Streamed in both directions.
//
//   "weir lustre recording 1\n"
//   "service=ost_io cpts=2 depth=3 started=1794727697 period=20000000\n"     seconds since 1970; ns
//   blocks: 'B', varint size, CRC-32C of the rest (4 bytes, big endian); in it varints
//     number of the block, time of the record before it (in units of 100 us since the start), then
//     records; a block has a second of them, or more if the server has few jobs
//   records
//     J index size bytes      a job has counters; indices of jobs that are gone are used again
//     U index   P index       its counters vanished; are there again
//     D index                 it is gone
//     N index nodes           its size, if it is known
//     C index cost            of its requests, in 1/1024 of a token; 1024 unless it is written
//     F count                 rules in effect, `default` excepted
//     I count longer          so many rounds in which nothing was served or changed, evenly spaced;
//                             their time less count times the length of the last round
//     R                       a round: change of its length, of queued and of busy; the total less
//                             the sum over jobs; jobs; glances. Jobs: (served - 1) * 4 + distance
//                             from the index before, 3: the distance less 3 follows. Glances:
//                             changes of queued and busy in one byte, or an escape and two varints
//   A varint has 7 bits a byte, the lowest first; changes are zigzag: 0, -1, 1, -2, ...
//
// About 15 bytes a round with four jobs, and a byte for thousands of idle rounds. Glances have no
// times: they are evenly spaced. Times are rounded to 100 us without adding up.
//
// A file that was cut is read up to its last whole block. Blocks that are damaged, or not in
// their order, and files of another version are errors that name the place.
// No clock; one owner. Every size that a file can name is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/adapt/rule_controller.h"
#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir::lustre {

struct RecordingHead {
  std::string service = "ost_io";
  std::uint32_t cpts = 1;
  std::uint32_t depth = 3;
  std::uint64_t started_s = 0;  // since 1970
  Nanoseconds period{0};        // as asked for; rounds may be longer
};

struct RecordedRound {
  RuleRound round;                                     // without rules
  std::vector<RuleGlance> glances;                     // before it, in order
  std::uint64_t rules = 0;                             // of others, in effect
  std::vector<std::pair<JobId, std::uint64_t>> sizes;  // that are new or changed
};

class RecordingWriter {
 public:
  static constexpr Nanoseconds kUnit = std::chrono::microseconds{100};
  static constexpr Nanoseconds kBlockTime = std::chrono::seconds{1};
  static constexpr std::size_t kBlockSize = 65536;
  static constexpr std::size_t kJobsMax = 65536;
  static constexpr std::uint64_t kCostParts = 16;  // a smaller part of a cost is not written
  static constexpr std::uint64_t kIdleMax = 3000;  // rounds in one record: a minute at 20 ms

  // REQUIRES: start is not later than the first round.
  RecordingWriter(const RecordingHead& head, Instant start);

  void set_size(const JobId& job, std::uint64_t nodes);
  void glance(const RuleGlance& seen) { glances_.push_back(seen); }
  // Ends a round. `rules`: in effect, `default` excepted.
  void add(const RuleRound& round, std::uint64_t rules);

  // Text to append to the file: the head, and whole blocks. kAll also ends the current block.
  enum class Take : std::uint8_t { kWhole, kAll };
  std::string take(Take what);

  // Taken and not yet taken.
  std::uint64_t bytes() const { return taken_ + out_.size() + block_.size(); }
  std::uint64_t rounds() const { return rounds_; }
  // Jobs that did not fit.
  std::uint64_t skipped() const { return skipped_; }

 private:
  struct Job {
    std::uint32_t index = 0;
    bool known = true;
    std::uint64_t cost = JobCount::kToken;  // as written
    std::uint64_t mark = 0;                 // the last round that had it
  };

  void put(std::uint64_t number);
  void put_signed(std::int64_t number);
  void put_jobs(const RuleRound& round);
  void put_served(const RuleRound& round);
  void put_glances();
  void put_idle();
  void end_block();

  std::string out_;
  std::string block_;
  std::uint64_t blocks_ = 0;
  Instant start_;
  std::uint64_t at_ = 0;  // of the last record, in units
  std::uint64_t block_at_ = 0;
  std::int64_t length_ = 0;  // of the last round, in units
  std::int64_t queued_ = 0;
  std::int64_t busy_ = 0;
  std::uint64_t rules_ = 0;
  std::uint64_t idle_ = 0;     // rounds not written yet
  std::uint64_t idle_at_ = 0;  // time of the last of them
  std::map<JobId, Job> jobs_;
  std::set<std::uint32_t> free_;
  std::map<JobId, std::uint64_t> sizes_;
  std::set<JobId> sized_;           // sizes that are not written yet
  std::size_t glances_before_ = 0;  // of the last round
  std::vector<std::pair<std::uint32_t, std::uint64_t>> served_;
  std::vector<RuleGlance> glances_;
  std::uint64_t taken_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t skipped_ = 0;
};

class RecordingReader {
 public:
  // Fills the span, less only at the end.
  using Source = std::function<Result<std::size_t>(std::span<char>)>;

  static constexpr std::size_t kBlockMax = std::size_t{16} << 20;
  static constexpr std::size_t kGlancesMax = 1024;

  // `where` names the file in errors.
  static Result<RecordingReader> open(Source source, std::string where);

  const RecordingHead& head() const { return head_; }
  // None at the end, and at a cut.
  Result<std::optional<RecordedRound>> next();
  // Whether the file ends within a block, which is known after the last next().
  bool is_cut() const { return cut_; }

 private:
  RecordingReader(Source source, std::string where)
      : source_(std::move(source)), where_(std::move(where)) {}

  struct Job {
    JobId job;
    bool known = true;
    std::uint64_t cost = JobCount::kToken;
  };

  Result<void> read_head();
  Result<std::string> read_line();
  Result<bool> read_block();
  Result<bool> fill(std::span<char> bytes);
  Result<std::optional<RecordedRound>> read_record();
  bool read_job(char kind);
  bool read_round(RecordedRound& round);
  bool read_served(RecordedRound& round, std::uint64_t& sum);
  bool read_glances(RecordedRound& round);
  bool read_idle();
  RecordedRound idle_round();
  bool begin_round(std::int64_t change, RecordedRound& round);
  void end_round(RecordedRound& round);
  std::optional<std::uint64_t> get();
  std::optional<std::int64_t> get_signed();
  tl::unexpected<Error> damaged(std::string_view what) const;

  Source source_;
  std::string where_;
  RecordingHead head_;
  std::string block_;
  std::size_t used_ = 0;  // of the block
  std::uint64_t blocks_ = 0;
  std::uint64_t offset_ = 0;  // in the file
  bool cut_ = false;
  std::uint64_t at_ = 0;
  std::int64_t length_ = 0;
  std::int64_t queued_ = 0;
  std::int64_t busy_ = 0;
  std::uint64_t rules_ = 0;
  std::uint64_t idle_ = 0;      // rounds still to return
  std::uint64_t idle_end_ = 0;  // time of the last of them
  std::size_t glances_ = 0;     // of the last round
  std::map<std::uint32_t, Job> jobs_;
  std::map<JobId, std::uint32_t> by_id_;
  std::vector<std::pair<JobId, std::uint64_t>> sizes_;
};

}  // namespace weir::lustre
