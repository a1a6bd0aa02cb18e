// SPDX-License-Identifier: Apache-2.0
//
// weir lustre record and what-if: observe a server without changing it, and decide over what was
// observed.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include "apps/weir/lustre.h"
#include "apps/weir/slurm_poll.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/clock.h"
#include "weir/host/fd.h"
#include "weir/host/files.h"
#include "weir/host/signals.h"
#include "weir/host/timer_fd.h"
#include "weir/lustre/driver.h"
#include "weir/lustre/recording.h"
#include "weir/lustre/what_if.h"

namespace weir::app {
namespace {

using lustre::RecordingWriter;
using lustre::WhatIf;

// Holds that are listed one by one.
constexpr std::size_t kHoldsShown = 20;

// ---- record ----

class LustreRecord {
 public:
  explicit LustreRecord(const LustreArguments& arguments)
      : arguments_(arguments), tree_(tree_options(arguments)) {}

  int run() {
    period_ = duration_of(arguments_.period.value_or("20ms"), "--period",
                          std::chrono::milliseconds{10}, std::chrono::seconds{10});
    if (arguments_.slurm) {
      pattern_ = value_or_fail(config::JobPattern::parse(arguments_.job_pattern), Exit::kUsage,
                               "--job-pattern");
      slurm_every_ = duration_of(arguments_.slurm_every, "--slurm-every", std::chrono::seconds{1},
                                 std::chrono::hours{1});
    }
    const Bytes size = value_or_fail(parse_size(arguments_.size), Exit::kUsage, "--size");
    const auto nodes = nodes_of(arguments_);
    const lustre::Service& service = *services_of(arguments_, tree_).front();
    const lustre::Costing costing = costing_of(arguments_);
    const auto view = lustre::look_only(tree_, service);
    if (!view) give_up(view.error());
    open_file();
    const host::LogWriter log;
    const lustre::Recorder::Options options{
        .head = {.service = std::string(service.name),
                 .cpts = lustre::partitions_of(tree_),
                 .depth = lustre::depth_of(tree_),
                 .started_s = wall_seconds(),
                 .period = period_},
        .bytes_per_day = std::max<std::uint64_t>(size.count(), 1),
        .service = &service,
        .costing = costing};
    recorder_.emplace(tree_, options, host::now());
    for (const config::JobNodes& one : nodes) {
      recorder_->writer().set_size(JobId(one.job), one.nodes);
    }
    auto signals = value_or_fail(host::SignalFd::create({SIGTERM, SIGINT}), Exit::kIoErr, "");
    auto timer = value_or_fail(host::TimerFd::create(), Exit::kIoErr, "");
    if (arguments_.slurm) slurm_.emplace(arguments_.squeue, slurm_every_);
    append(RecordingWriter::Take::kWhole);
    host::notify_manager("READY=1");
    print_error("weir lustre: recording {} every {} to {}; nothing is changed\n", service.name,
                print_duration(period_), quote(arguments_.object));
    loop(signals, timer);
    return finish();
  }

 private:
  static std::uint64_t wall_seconds() {
    const auto now = host::wall_now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::max<std::int64_t>(std::chrono::floor<std::chrono::seconds>(now).count(), 0));
  }

  // A file that exists may be the recording of another day.
  void open_file() {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
    file_ = host::Fd(open(arguments_.object.c_str(), flags, 0644));
    if (file_.is_open()) return;
    const int error = errno;
    check(fail_errno(error, quote(arguments_.object), error == EEXIST ? "name another file" : ""),
          Exit::kCantCreate, "");
  }

  void append(RecordingWriter::Take what) {
    const std::string text = recorder_->writer().take(what);
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t wrote = write(file_.get(), rest.data(), rest.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) {
        check(fail_errno(errno, quote(arguments_.object), "what was written until now can be read"),
              Exit::kIoErr, "");
      }
      rest.remove_prefix(static_cast<std::size_t>(wrote));
    }
  }

  void loop(host::SignalFd& signals, host::TimerFd& timer) {
    const auto take = [this](std::string_view text) { take_sizes(text); };
    Instant next = host::now();
    for (std::uint64_t rounds = 0; arguments_.rounds == 0 || rounds < arguments_.rounds; ++rounds) {
      const auto done = recorder_->round(host::now());
      if (!done) {
        tell(done.error().message());
      } else if (!std::exchange(told_, {}).empty()) {
        print_error("weir lustre: recording again\n");
      }
      append(RecordingWriter::Take::kWhole);
      if (recorder_->is_thinning() && !std::exchange(told_thinning_, true)) {
        print_error(
            "weir lustre: {} a day are not enough for a round every {}; recording every {} "
            "now and then\n",
            arguments_.size, print_duration(period_),
            print_duration(std::chrono::ceil<std::chrono::milliseconds>(recorder_->period())));
      }
      const Nanoseconds part = recorder_->period() / lustre::Driver::kGlances;
      for (int glances = 0; glances < lustre::Driver::kGlances; ++glances) {
        if (glances > 0) recorder_->glance(host::now());
        next = std::max(next + part, host::now() + part / 4);
        timer.arm(next);
        if (!wait_for(timer, signals, slurm_, take)) return;
      }
    }
  }

  void take_sizes(std::string_view text) {
    const auto jobs = config::SlurmJobs::parse(text);
    if (!jobs) return tell(jobs.error().message());
    std::vector<std::string> seen;
    if (!pattern_->is_known()) {
      for (const JobCount& job : recorder_->last_round().jobs) seen.emplace_back(job.job.text());
    }
    for (const config::JobNodes& size : jobs->sizes(*pattern_, seen).jobs) {
      recorder_->writer().set_size(JobId(size.job), size.nodes);
    }
  }

  void tell(const std::string& message) {
    if (message == told_) return;
    told_ = message;
    print_error("weir lustre: {}; trying again\n", message);
  }

  int finish() {
    append(RecordingWriter::Take::kAll);
    const RecordingWriter& writer = recorder_->writer();
    print_error("weir lustre: {} rounds in {} bytes{}\n", writer.rounds(), writer.bytes(),
                writer.skipped() == 0 ? ""
                                      : fmt::format("; {} jobs beyond {} were left out",
                                                    writer.skipped(), RecordingWriter::kJobsMax));
    return 0;
  }

  const LustreArguments& arguments_;
  lustre::HostTree tree_;
  Nanoseconds period_{0};
  Nanoseconds slurm_every_{0};
  host::Fd file_;
  std::optional<lustre::Recorder> recorder_;
  std::optional<SlurmPoll> slurm_;
  std::optional<config::JobPattern> pattern_;
  std::string told_;
  bool told_thinning_ = false;
};

// ---- what-if ----

std::string clock_text(const lustre::RecordingHead& head, Instant at, bool has_day) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(at.time_since_epoch());
  const std::time_t time =
      static_cast<std::time_t>(head.started_s) +
      static_cast<std::time_t>(std::chrono::floor<std::chrono::seconds>(ms).count());
  std::tm parts{};
  localtime_r(&time, &parts);
  return has_day ? fmt::format("{:%Y-%m-%d %H:%M:%S}", parts)
                 : fmt::format("{:%H:%M:%S}.{:03}", parts, ms.count() % 1000);
}

std::string short_duration(Nanoseconds time) {
  const auto ms = std::chrono::round<std::chrono::milliseconds>(time).count();
  return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000);
}

// "12" or "12-15"
std::string range_of(std::uint64_t a, std::uint64_t b) {
  return a == b ? std::to_string(a) : fmt::format("{}-{}", std::min(a, b), std::max(a, b));
}

std::string range_of(Nanoseconds a, Nanoseconds b) {
  const std::string low = short_duration(std::min(a, b));
  const std::string high = short_duration(std::max(a, b));
  return low == high ? low : low.substr(0, low.size() - 2) + "-" + high;
}

struct Seen {
  std::uint64_t rounds = 0;
  Instant end{};
  Nanoseconds longest{0};  // from one round to the next
};

void print_jobs(const WhatIf& fixed, const WhatIf& endless) {
  auto jobs = fixed.jobs();
  const auto others = endless.jobs();
  std::stable_sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return a.second.hold.total > b.second.hold.total;
  });
  fmt::print("{:<24} {:>6} {:>12} {:>10} {:>16} {:>8} {:>16} {:>16}\n", "JOB", "NODES", "SERVED",
             "HELD", "FOR", "LOWEST", "LESS WHILE HELD", "MORE, EARLIER");
  for (const auto& [id, job] : jobs) {
    const auto found = std::lower_bound(others.begin(), others.end(), id,
                                        [](const auto& a, const JobId& b) { return a.first < b; });
    const WhatIf::Job other =
        found != others.end() && found->first == id ? found->second : WhatIf::Job{};
    const std::uint32_t lowest = std::min(job.hold.lowest, other.hold.lowest);
    fmt::print("{:<24} {:>6} {:>12} {:>10} {:>16} {:>8} {:>16} {:>16}\n", quote(id.text()),
               fixed.controller().nodes_of(id), job.served,
               range_of(job.hold.times, other.hold.times),
               range_of(job.hold.total, other.hold.total),
               job.hold.times + other.hold.times == 0 ? "-" : fmt::format("{}/s", lowest),
               range_of(job.less, other.less), range_of(job.more, other.more));
  }
}

void print_report(const lustre::RecordingReader& reader, const Seen& seen, const WhatIf& fixed,
                  const WhatIf& endless) {
  const lustre::RecordingHead& head = reader.head();
  const auto& options = fixed.controller().options();
  const Nanoseconds length = seen.end.time_since_epoch();
  const auto rounds = static_cast<std::int64_t>(std::max<std::uint64_t>(seen.rounds, 1));
  fmt::print("recording    {} from {} for {}; {} rounds, one in {} on average and in {} at most\n",
             head.service, clock_text(head, Instant{}, true), short_duration(length), seen.rounds,
             print_duration(std::chrono::ceil<std::chrono::milliseconds>(length / rounds)),
             print_duration(std::chrono::ceil<std::chrono::milliseconds>(seen.longest)));
  if (reader.is_cut()) {
    fmt::print("             the file is cut: it was read up to {}\n",
               clock_text(head, seen.end, true));
  }
  const auto capacity = fixed.controller().capacity();
  fmt::print("capacity     {}\n",
             capacity ? fmt::format("{} a second, {}",
                                    tokens_in(*capacity, std::chrono::seconds{1}).count(),
                                    options.capacity ? "as given" : "measured")
                      : "was never measured: requests never waited");
  fmt::print("algorithm    {}; {} writes\n",
             options.mode == RuleController::Mode::kPaper ? "paper" : "weir",
             range_of(fixed.changes(), endless.changes()));
  fmt::print("left unused  {} of {} requests\n\n", range_of(fixed.lost(), endless.lost()),
             fixed.served());
  print_jobs(fixed, endless);
  if (fixed.forgotten() > 0) fmt::print("and {} jobs that had ended\n", fixed.forgotten());
  const auto& spans = fixed.spans();
  if (!spans.empty()) fmt::print("\nheld\n");
  for (std::size_t i = 0; i < std::min(spans.size(), kHoldsShown); ++i) {
    fmt::print("  {}  {:>8}  {} at {}/s or more\n", clock_text(head, spans[i].from, false),
               short_duration(spans[i].to - spans[i].from), quote(spans[i].job.text()),
               spans[i].lowest);
  }
  if (fixed.spans_all() > kHoldsShown) {
    fmt::print("  and {} more times\n", fixed.spans_all() - kHoldsShown);
  }
  fmt::print(
      "\nA recording has what was served, not what was asked for. One end of a range assumes that "
      "jobs\nhad no more to do at a time than was recorded, so that what a held job leaves is "
      "lost; "
      "the other,\nthat jobs which waited always had more, so that they are held against each "
      "other "
      "for longer. How\nlong single requests take is not predicted.\n");
  if (fixed.ruled() > Nanoseconds{0}) {
    fmt::print("Rules of others were in effect for {}: what they held back was not recorded.\n",
               short_duration(fixed.ruled()));
  }
}

}  // namespace

int record_lustre(const LustreArguments& arguments) { return LustreRecord(arguments).run(); }

int decide_over_recording(const LustreArguments& arguments) {
  RuleController::Options options = controller_options(arguments);
  const auto nodes = nodes_of(arguments);
  auto source = value_or_fail(host::open_source(arguments.object), Exit::kNoInput, "");
  auto reader =
      value_or_fail(lustre::RecordingReader::open(std::move(source), quote(arguments.object)),
                    Exit::kDataErr, "");
  if (!arguments.period && options.mode == RuleController::Mode::kWeir) {
    options.period = std::clamp<Nanoseconds>(reader.head().period, std::chrono::milliseconds{10},
                                             std::chrono::seconds{10});
  }
  options.cpts = reader.head().cpts;
  options.depth = reader.head().depth;
  WhatIf fixed(options, WhatIf::Work::kFixed);
  WhatIf endless(options, WhatIf::Work::kEndless);
  for (const config::JobNodes& size : nodes) {
    fixed.set_nodes(JobId(size.job), size.nodes);
    endless.set_nodes(JobId(size.job), size.nodes);
  }
  Seen seen;
  for (;;) {
    const auto round = value_or_fail(reader.next(), Exit::kDataErr, "");
    if (!round) break;
    fixed.add(*round);
    endless.add(*round);
    if (seen.rounds++ > 0) seen.longest = std::max(seen.longest, round->round.at - seen.end);
    seen.end = round->round.at;
  }
  if (seen.rounds == 0) {
    throw Failure{Exit::kDataErr,
                  fmt::format("{}: has no rounds; record for longer", quote(arguments.object))};
  }
  fixed.finish();
  endless.finish();
  print_report(reader, seen, fixed, endless);
  check_output();
  return 0;
}

}  // namespace weir::app
