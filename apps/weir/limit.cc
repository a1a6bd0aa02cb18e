// SPDX-License-Identifier: Apache-2.0
//
// weir limit: a rate-limited pipe.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <memory>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/progress.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/embed/paced_copy.h"
#include "weir/host/clock.h"
#include "weir/host/state_file.h"
#include "weir/pace/limiter_text.h"

namespace weir::app {
namespace {

constexpr Nanoseconds kDefaultBurst = std::chrono::milliseconds{10};
// With fewer, every late wake-up would lose tokens.
constexpr Tokens kOpsDepthMin{2};
constexpr Tokens kBytesDepthMin{2};

constexpr const char* kFooter = R"(
Values:
  BANDWIDTH  500MiB/s, 50MB, 10GiB/d: the unit is required; without a time, per second
  RATE       1000, 20k, 30/min, 1/d
  DEPTH      a time (20ms, for both rates), a size (1MiB, for --bps), or operations (5ops, for
             --iops); can be given twice

Examples:
  weir limit --bps 50MiB -- backup.tar > /mnt/slow/backup.tar
  tar c home | weir limit --bps 20MB/s --iops 500 --block 128KiB > home.tar
  weir limit --bps 10GiB/d --state ~/.quota -- today.log | upload

Manual: weir-limit(1).)";

struct LimitArguments {
  std::string file = "-";
  std::optional<std::string> bps;
  std::optional<std::string> iops;
  std::vector<std::string> bursts;
  std::string block = "64KiB";
  std::optional<std::string> state;
  bool quiet = false;
};

// Depths of the buckets; those not set follow from the rate.
struct Depths {
  std::optional<Tokens> bytes;
  std::optional<Tokens> ops;
  std::optional<Nanoseconds> time;
};

// A bucket with an explicit depth starts full. The default depth only compensates for late
// wake-ups, so the bucket starts empty except for one operation, and the rate holds from the start.
enum class Start : std::uint8_t { kFull, kEmpty };

struct Limit {
  LimiterSpec spec;
  Start start;
};

struct Limits {
  std::optional<Limit> bytes;
  std::optional<Limit> ops;
};

// ---- options ----

[[noreturn]] void refuse_burst(const std::string& text, std::string_view what) {
  throw Failure{Exit::kUsage, fmt::format("--burst: {}: {}", quote(text), what)};
}

// Whether it is a time: sizes have units that end in B; times are "20ms", "2h", "1d", "1min".
bool is_time(std::string_view text) {
  return !text.empty() && std::string_view("snhd").find(text.back()) != std::string_view::npos;
}

// "5ops"
std::optional<Tokens> parse_ops(std::string_view text) {
  constexpr std::string_view kSuffix = "ops";
  if (!text.ends_with(kSuffix)) return std::nullopt;
  text.remove_suffix(kSuffix.size());
  return Tokens{value_or_fail(parse_count(text), Exit::kUsage, "--burst")};
}

void apply_burst(const std::string& text, const LimitArguments& arguments, Depths& depths) {
  const bool bare = text.find_first_not_of("0123456789.") == std::string::npos;
  if (bare && arguments.bps && arguments.iops) {
    refuse_burst(text, "could mean bytes or operations; write 20ms, 1MiB or 5ops");
  }
  std::optional<Tokens> ops = parse_ops(text);
  if (!ops && is_time(text)) {
    const Nanoseconds time = value_or_fail(parse_duration(text), Exit::kUsage, "--burst");
    if (time == Nanoseconds{0}) refuse_burst(text, "must not be zero");
    depths.time = time;
    return;
  }
  if (!ops && bare && !arguments.bps) {
    ops = Tokens{value_or_fail(parse_count(text), Exit::kUsage, "--burst")};
  }
  const Tokens depth =
      ops ? *ops : Tokens{value_or_fail(parse_size(text), Exit::kUsage, "--burst").count()};
  if (depth == Tokens{0}) refuse_burst(text, "must not be zero");
  if (!(ops ? arguments.iops : arguments.bps)) {
    refuse_burst(text,
                 ops ? "is for --iops, which is not given" : "is for --bps, which is not given");
  }
  (ops ? depths.ops : depths.bytes) = depth;
}

Limit make_limit(Rate rate, std::optional<Tokens> depth, Tokens least, const Depths& depths,
                 std::string_view option) {
  const Tokens by_time = tokens_in(rate, depths.time.value_or(kDefaultBurst));
  const LimiterSpec spec{depth.value_or(std::max(by_time, least)), Tokens{0}, rate};
  check(spec.check(), Exit::kUsage, option);
  return {spec, depth || depths.time ? Start::kFull : Start::kEmpty};
}

Limits make_limits(const LimitArguments& arguments) {
  if (!arguments.bps && !arguments.iops) {
    throw Failure{Exit::kUsage, "nothing to limit; give --bps, --iops or both"};
  }
  Depths depths;
  for (const std::string& burst : arguments.bursts) apply_burst(burst, arguments, depths);
  Limits limits;
  if (arguments.bps) {
    const Rate rate = value_or_fail(parse_bandwidth(*arguments.bps), Exit::kUsage, "--bps");
    limits.bytes = make_limit(rate, depths.bytes, kBytesDepthMin, depths, "--bps");
  }
  if (arguments.iops) {
    const Rate rate = value_or_fail(parse_rate(*arguments.iops), Exit::kUsage, "--iops");
    limits.ops = make_limit(rate, depths.ops, kOpsDepthMin, depths, "--iops");
  }
  return limits;
}

// ---- state: "saved <wall time in ns>\n", then the limiter's own text ----

constexpr std::string_view kSaved = "saved ";

std::string state_text(const RateLimiter::State& state) {
  return fmt::format("{}{}\n{}", kSaved, host::wall_now().time_since_epoch().count(),
                     limiter_text(state));
}

struct SavedState {
  RateLimiter::State limiter;
  Nanoseconds age;
};

SavedState parse_state(std::string_view text, const std::string& path) {
  std::int64_t saved_ns = 0;
  const std::size_t line = text.find('\n');
  std::from_chars_result read{nullptr, std::errc::invalid_argument};
  if (text.starts_with(kSaved) && line != std::string_view::npos) {
    read = std::from_chars(text.data() + kSaved.size(), text.data() + line, saved_ns);
  }
  if (read.ec != std::errc{} || read.ptr != text.data() + line) {
    throw Failure{Exit::kDataErr, "--state: " + path +
                                      ": not written by weir limit; name another "
                                      "file, or remove it to start with full buckets"};
  }
  const Nanoseconds now = host::wall_now().time_since_epoch();
  // Neither a clock that was set back nor a forged time may give more than full buckets.
  const Nanoseconds age =
      saved_ns > now.count() || saved_ns < 0 ? Nanoseconds{0} : now - Nanoseconds{saved_ns};
  return {value_or_fail(parse_limiter_text(text.substr(line + 1), path), Exit::kDataErr, "--state"),
          std::min(age, Nanoseconds{BucketShape::kFillTimeMax})};
}

std::optional<LimiterSpec> spec_of(const std::optional<Limit>& limit) {
  if (!limit) return std::nullopt;
  return limit->spec;
}

BucketUpdate update_to(const std::optional<Limit>& limit) {
  return limit ? BucketUpdate::replace(limit->spec) : BucketUpdate::disable();
}

embed::LimiterTimer make_fresh_limiter(const Limits& limits) {
  auto limiter = value_or_fail(
      embed::LimiterTimer::create(spec_of(limits.bytes), spec_of(limits.ops)), Exit::kIoErr, "");
  const auto start = [&](const std::optional<Limit>& limit, TokenKind kind, Tokens left) {
    if (limit && limit->start == Start::kEmpty) limiter.consume(limit->spec.size - left, kind);
  };
  start(limits.bytes, TokenKind::kBytes, Tokens{0});
  start(limits.ops, TokenKind::kOps,
        Tokens{1});  // so that the first one does not wait for minutes at low rates
  return limiter;
}

embed::LimiterTimer make_limiter(const Limits& limits, const host::StateFile* file,
                                 const std::string& path) {
  if (file == nullptr || file->is_new()) return make_fresh_limiter(limits);
  const SavedState saved = parse_state(file->text(), path);
  auto limiter = value_or_fail(embed::LimiterTimer::restore(saved.limiter, saved.age),
                               Exit::kDataErr, "--state: " + path);
  limiter.update_buckets(update_to(limits.bytes), update_to(limits.ops));
  return limiter;
}

std::optional<host::StateFile> open_state(const std::optional<std::string>& path) {
  if (!path) return std::nullopt;
  auto file = host::StateFile::open(*path);
  if (!file) {
    const bool busy = file.error().code == std::errc::device_or_resource_busy;
    throw Failure{busy ? Exit::kTempFail : Exit::kCantCreate, "--state: " + file.error().message()};
  }
  return std::move(*file);
}

// ---- signals ----

std::atomic<bool> stop_requested{false};
std::atomic<int> stop_signal{0};

// A signal may arrive between the check of the flag and the call that then blocks. A second alarm
// one second later makes that call return.
extern "C" void on_stop(int signal_number) {
  if (signal_number != SIGALRM) stop_signal = signal_number;
  stop_requested = true;
  alarm(1);
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop;  // no SA_RESTART, so that blocking calls return
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) {
    sigaction(signal_number, &action, nullptr);
  }
  signal(SIGPIPE, SIG_IGN);  // write() then fails with EPIPE
}

// Terminates by the same signal, so that the parent process sees it.
void end_by_signal() {
  alarm(0);
  if (const int signal_number = stop_signal.load(); signal_number != 0) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

// ---- the command ----

struct Input {
  host::Fd owned;
  int fd = STDIN_FILENO;
  std::string name = "standard input";
  std::optional<Bytes> size;
};

Input open_input(const std::string& file) {
  Input input;
  if (file != "-") {
    input.name = quote(file);
    input.owned = host::Fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    input.fd = input.owned.get();
    if (!input.owned.is_open()) {
      check(fail_errno(errno, input.name), Exit::kNoInput, "");
    }
  }
  struct stat in, out;
  if (fstat(input.fd, &in) != 0) check(fail_errno(errno, input.name), Exit::kNoInput, "");
  if (S_ISDIR(in.st_mode)) {
    throw Failure{Exit::kNoInput, input.name + ": is a directory; name a file"};
  }
  if (S_ISREG(in.st_mode)) {
    const off_t at = lseek(input.fd, 0, SEEK_CUR);
    input.size = Bytes{static_cast<std::uint64_t>(std::max<off_t>(in.st_size - at, 0))};
    if (fstat(STDOUT_FILENO, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
      throw Failure{Exit::kUsage, input.name + ": is also the output; name another file"};
    }
  }
  return input;
}

std::string totals_text(const embed::CopyTotals& totals) {
  const auto ms = totals.elapsed / std::chrono::milliseconds{1};
  return fmt::format("{} bytes, {} ops in {}.{:03} s, {}", totals.bytes.count(), totals.ops,
                     ms / 1000, ms % 1000, about_bandwidth(totals.bytes, totals.elapsed));
}

int limit(const LimitArguments& arguments) {
  const Limits limits = make_limits(arguments);
  const Bytes block = value_or_fail(parse_size(arguments.block), Exit::kUsage, "--block");
  if (block == Bytes{0}) throw Failure{Exit::kUsage, "--block: must not be zero"};
  const Input input = open_input(arguments.file);
  auto state_file = open_state(arguments.state);
  auto limiter =
      make_limiter(limits, state_file ? &*state_file : nullptr, arguments.state.value_or(""));

  catch_signals();
  Progress progress(input.size,
                    arguments.quiet ? Progress::Show::kNever : Progress::Show::kOnTerminal);
  embed::CopyOptions options{.block = block, .stop = &stop_requested, .progress = {}};
  if (progress.is_shown()) {
    options.progress = [&](const embed::CopyTotals& totals) {
      progress.draw(totals.bytes, totals.elapsed);
    };
  }
  embed::CopyTotals totals;
  const auto copied = embed::paced_copy(input.fd, STDOUT_FILENO, limiter, options, totals);
  progress.erase();
  if (!arguments.quiet) print_error("weir limit: {}\n", totals_text(totals));
  if (state_file) {
    check(state_file->replace(state_text(limiter.save())), Exit::kIoErr, "--state");
  }
  check(copied, Exit::kIoErr, "");
  end_by_signal();
  return static_cast<int>(Exit::kOk);
}

}  // namespace

void add_limit(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<LimitArguments>();
  CLI::App* command = weir.add_subcommand("limit",
                                          "Copy a file or standard input to standard "
                                          "output at a limited bandwidth and operation rate");
  command->add_option("FILE", arguments->file, "Copy FILE; - is standard input (default)");
  command->add_option("--bps", arguments->bps, "Limit bytes per time, such as 50MiB or 10GiB/d")
      ->type_name("BANDWIDTH");
  command
      ->add_option("--iops", arguments->iops, "Limit operations per time; a block is one operation")
      ->type_name("RATE");
  command
      ->add_option("--burst", arguments->bursts,
                   "Set the depth of the buckets, which start full (default 10ms, starting empty)")
      ->type_name("DEPTH")
      ->allow_extra_args(false);
  command
      ->add_option("--block", arguments->block, "Count each SIZE as one operation (default 64KiB)")
      ->type_name("SIZE");
  command
      ->add_option("--state", arguments->state,
                   "Continue with the budget that the last run left in FILE")
      ->type_name("FILE");
  command->add_flag("-q,--quiet", arguments->quiet, "Print no progress and no totals");
  command->footer(kFooter);
  command->callback([arguments, &status] { status = limit(*arguments); });
}

}  // namespace weir::app
