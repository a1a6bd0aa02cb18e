// SPDX-License-Identifier: Apache-2.0
//
// weir bench: generates load on an NBD server and measures it.
#include <atomic>
#include <csignal>
#include <memory>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/weir/command.h"
#include "apps/weir/progress.h"
#include "weir/base/units.h"
#include "weir/host/log.h"
#include "weir/nbd/load.h"

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
Examples:
  weir bench nbd://localhost/scratch
  weir bench nbd://localhost/scratch --job vm1 --depth 1
  weir bench nbd://storage/scratch --connections 4 --size 64KiB --read 70 --overwrite
  weir bench 'nbd+unix:///scratch?socket=/run/weir/nbd' --rate 2000 --time 30s --json

Manual: weir-bench(1).)";

constexpr std::uint64_t kMemoryMax = std::uint64_t{1} << 30;  // of payload in progress

struct BenchArguments {
  std::string uri;
  std::uint32_t connections = 1;
  std::uint32_t depth = 16;
  std::string size = "4KiB";
  std::uint32_t read = 100;
  std::optional<std::string> job;
  std::optional<std::string> rate;
  std::string time = "10s";
  bool overwrite = false;
  bool json = false;
};

nbd::LoadPlan make_plan(const BenchArguments& arguments) {
  nbd::LoadPlan plan{.connections = arguments.connections,
                     .depth = arguments.depth,
                     .read_percent = arguments.read,
                     .rate = {}};
  const Bytes size = value_or_fail(parse_size(arguments.size), Exit::kUsage, "--size");
  if (size == Bytes{0} || size.count() > nbd::kPayloadMax) {
    throw Failure{Exit::kUsage,
                  fmt::format("--size: must be from 1 to {}", print_size(Bytes{nbd::kPayloadMax}))};
  }
  plan.size = static_cast<std::uint32_t>(size.count());
  if (size.count() * plan.depth * plan.connections > kMemoryMax) {
    throw Failure{Exit::kUsage,
                  "--size, --depth and --connections: more than 1GiB would be in progress; give "
                  "smaller numbers"};
  }
  plan.time = value_or_fail(parse_duration(arguments.time), Exit::kUsage, "--time");
  if (plan.time == Nanoseconds{0}) throw Failure{Exit::kUsage, "--time: must not be zero"};
  if (arguments.rate) {
    plan.rate = value_or_fail(parse_rate(*arguments.rate), Exit::kUsage, "--rate");
  }
  if (plan.read_percent < 100 && !arguments.overwrite) {
    throw Failure{Exit::kUsage,
                  "--read: writes replace what the export contains; give --overwrite "
                  "if that is meant"};
  }
  return plan;
}

nbd::Address make_address(const BenchArguments& arguments) {
  nbd::Address address = value_or_fail(nbd::parse_uri(arguments.uri), Exit::kUsage, "");
  if (arguments.job) {
    if (address.export_name.find("job=") != std::string::npos) {
      throw Failure{Exit::kUsage, "--job: the address also names a job; give only one of them"};
    }
    address.export_name += ",job=" + *arguments.job;
  }
  return address;
}

// ---- the report ----

double seconds_of(Nanoseconds time) { return static_cast<double>(time.count()) / 1e9; }

double per_second(std::uint64_t count, Nanoseconds elapsed) {
  return elapsed > Nanoseconds{0} ? static_cast<double>(count) / seconds_of(elapsed) : 0;
}

std::uint64_t completed(const nbd::LoadResult& result) {
  return result.reads.latency.count() + result.writes.latency.count();
}

std::string milliseconds_of(std::uint64_t ns) {
  return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6);
}

void print_kind(const char* name, const nbd::LoadResult::Kind& kind, const nbd::LoadPlan& plan,
                Nanoseconds elapsed) {
  if (kind.latency.count() + kind.errors == 0) return;
  const Histogram& latency = kind.latency;
  fmt::print("{:<6}{:>12.0f}{:>12.2f}{:>10}{:>10}{:>10}{:>10}{:>9}\n", name,
             per_second(latency.count(), elapsed),
             per_second(latency.count() * plan.size, elapsed) / (1 << 20),
             milliseconds_of(latency.quantile(1, 2)), milliseconds_of(latency.quantile(99, 100)),
             milliseconds_of(latency.quantile(999, 1000)), milliseconds_of(latency.max()),
             kind.errors);
}

void print_table(const BenchArguments& arguments, const nbd::LoadPlan& plan,
                 const nbd::LoadResult& result) {
  fmt::print("{}: {} requests of {}, depth {} on {} connection{}, {:.1f} s\n", arguments.uri,
             completed(result), print_size(Bytes{plan.size}), plan.depth, plan.connections,
             plan.connections == 1 ? "" : "s", seconds_of(result.elapsed));
  fmt::print("{:<6}{:>12}{:>12}{:>10}{:>10}{:>10}{:>10}{:>9}\n", "", "ops/s", "MiB/s", "p50 ms",
             "p99 ms", "p99.9 ms", "max ms", "errors");
  print_kind("read", result.reads, plan, result.elapsed);
  print_kind("write", result.writes, plan, result.elapsed);
  if (result.unanswered != 0) fmt::print("{} requests were not answered\n", result.unanswered);
}

nlohmann::ordered_json json_of(const nbd::LoadResult::Kind& kind, const nbd::LoadPlan& plan,
                               Nanoseconds elapsed) {
  const Histogram& latency = kind.latency;
  return {{"requests", latency.count()},
          {"errors", kind.errors},
          {"ops_per_second", per_second(latency.count(), elapsed)},
          {"bytes_per_second", per_second(latency.count() * plan.size, elapsed)},
          {"p50_ns", latency.quantile(1, 2)},
          {"p99_ns", latency.quantile(99, 100)},
          {"p999_ns", latency.quantile(999, 1000)},
          {"max_ns", latency.max()}};
}

void print_json(const BenchArguments& arguments, const nbd::LoadPlan& plan,
                const nbd::LoadResult& result) {
  const nlohmann::ordered_json report = {{"uri", arguments.uri},
                                         {"size", plan.size},
                                         {"depth", plan.depth},
                                         {"connections", plan.connections},
                                         {"seconds", seconds_of(result.elapsed)},
                                         {"reads", json_of(result.reads, plan, result.elapsed)},
                                         {"writes", json_of(result.writes, plan, result.elapsed)},
                                         {"unanswered", result.unanswered}};
  fmt::print("{}\n", report.dump());
}

// ---- the command ----

std::atomic<bool> stop_requested{false};
extern "C" void on_bench_stop(int) { stop_requested = true; }

int bench(const BenchArguments& arguments) {
  const nbd::LoadPlan plan = make_plan(arguments);
  const nbd::Address address = make_address(arguments);
  nbd::Load load(plan);
  check(load.connect(address), Exit::kUnavailable, address.text());
  struct sigaction action {};
  action.sa_handler = on_bench_stop;
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
  Progress progress(std::nullopt,
                    arguments.json ? Progress::Show::kNever : Progress::Show::kOnTerminal);
  auto result = load.run(stop_requested, [&](const nbd::LoadResult& now) {
    progress.draw(Bytes{completed(now) * plan.size}, now.elapsed);
  });
  progress.erase();
  const nbd::LoadResult measured = value_or_fail(std::move(result), Exit::kIoErr, address.text());
  arguments.json ? print_json(arguments, plan, measured) : print_table(arguments, plan, measured);
  const bool is_good = measured.reads.errors + measured.writes.errors + measured.unanswered == 0;
  return static_cast<int>(is_good ? Exit::kOk : Exit::kIoErr);
}

}  // namespace

void add_bench(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command =
      weir.add_subcommand("bench", "Measure the throughput and latency of an NBD server");
  command->add_option("URI", arguments->uri, "The export, such as nbd://localhost/scratch")
      ->required();
  command->add_option("--connections", arguments->connections, "Open N connections (default 1)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command
      ->add_option("--depth", arguments->depth,
                   "Keep N requests in progress on each connection (default 16)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--size", arguments->size, "Read and write SIZE at a time (default 4KiB)")
      ->type_name("SIZE");
  command
      ->add_option("--read", arguments->read,
                   "Let PERCENT of the requests be reads and the rest writes (default 100)")
      ->check(CLI::Range(0, 100))
      ->type_name("PERCENT");
  command->add_flag("--overwrite", arguments->overwrite,
                    "Allow writes, which replace the contents of the export");
  command->add_option("--job", arguments->job, "Send the requests as this job")->type_name("JOB");
  command
      ->add_option("--rate", arguments->rate,
                   "Start RATE requests per second instead of as many as possible")
      ->type_name("RATE");
  command->add_option("--time", arguments->time, "Measure for TIME (default 10s)")
      ->type_name("TIME");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->footer(kFooter);
  command->callback([arguments, &status] { status = bench(*arguments); });
}

}  // namespace weir::app
